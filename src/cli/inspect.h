// The parts of tutti inspect: each knows one kind of thing, and says what is in it as text or as JSON.
#pragma once

#include "base/file.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace tutti::cli {

struct Inspection {
    std::string text;
    nlohmann::ordered_json json;
};

struct ModelInspectOptions {
    std::int64_t batch = 1;
    std::int64_t sequence = 0; // 0: the model's context, at most 1024
};

Inspection inspect_model(const std::string& name_or_folder, const ModelInspectOptions& options);
std::string model_graph_text(const std::string& name_or_folder, const ModelInspectOptions& options);
std::string model_program_text(const std::string& name_or_folder, const ModelInspectOptions& options);

Inspection inspect_tensors(const fs::path& path);
Inspection inspect_plan(const fs::path& path);
Inspection inspect_checkpoint_folder(const fs::path& folder);

} // namespace tutti::cli

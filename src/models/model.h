// A model: the forward graph with its loss, and where such graphs come from: a Hugging Face folder or a built-in name.
#pragma once

#include "base/file.h"
#include "graph/graph.h"
#include "models/initialisation.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::models {

// Of one micro-batch. Parameters and activations have `dtype`; statistics, rotary tables and the loss are kept wider.
struct ModelShape {
    std::int64_t batch = 1;
    std::int64_t sequence = 1;
    DType dtype = DType::float32;
    bool documents = false; // sequences are documents one behind the other: the input "documents" says where they begin
};

// What is known of a model whatever its shape.
struct ModelFacts {
    std::string architecture; // "LlamaForCausalLM"
    bool causal = true;       // false: a masked language model
    std::int64_t vocabulary = 0;
    std::int64_t context = 0;      // the sequence length it was made for
    std::int64_t max_sequence = 0; // the longest sequence it has positions for; 0: any
    std::int64_t mask_token = -1;  // of a masked language model whose config tells it
};

struct Model : ModelFacts {
    Graph graph;
    ValueId input_ids = ValueId::none; // int64 [batch, sequence], the graph's inputs "input_ids" and "targets"
    ValueId targets = ValueId::none;   // already shifted; -100 does not count
    ValueId documents = ValueId::none; // int32 [batch, sequence], the input "documents": per token, the position at
                                       // which its document begins; none where the shape has no documents
    ValueId logits = ValueId::none;    // [batch, sequence, vocabulary], output "logits"
    ValueId loss = ValueId::none;      // the sum over the targets that count, output "loss"
    std::vector<Initialisation> initialisation; // one per graph.stored()
};

namespace huggingface {
struct Family;
class Config;
} // namespace huggingface

// What is needed to build a model any number of times, at different shapes.
class ModelSource {
  public:
    // A config.json. `where` names it in error sentences: the file's path, or the built-in model's name. Everything in
    // it is checked here: unknown architectures, values that are not supported, sizes that do not fit are Errors.
    ModelSource(nlohmann::json config, std::string where, fs::path folder = {});

    Model build(const ModelShape& shape) const;
    // The same model for sequences of several documents: each shape that it is built at has them. Error where the model
    // is not causal.
    ModelSource with_documents() const;
    bool has_documents() const { return documents_; }

    const ModelFacts& facts() const { return facts_; }
    const nlohmann::json& config() const { return config_; } // as it was read
    const std::string& where() const { return where_; }
    const fs::path& folder() const { return folder_; }                     // empty for a built-in model
    const std::vector<std::string>& warnings() const { return warnings_; } // keys that are not known, one sentence each
    const huggingface::Family& family() const { return *family_; }

  private:
    nlohmann::json config_;
    std::string where_;
    fs::path folder_;
    const huggingface::Family* family_ = nullptr;
    std::shared_ptr<const huggingface::Config> read_;
    ModelFacts facts_;
    std::vector<std::string> warnings_;
    bool documents_ = false;
};

// A folder with a config.json, or a built-in name.
ModelSource open_model(const std::string& name_or_folder);

} // namespace tutti::models

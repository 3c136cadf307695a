// The models of tests/data/references, in float64 and for any number of ranks.
#pragma once

#include "base/file.h"
#include "formats/json.h"
#include "models/model.h"
#include "support/paths.h"

#include <algorithm>
#include <string>
#include <vector>

namespace tutti::testing {

inline const fs::path& references() {
    static const fs::path folder = test::test_data() / "references";
    return folder;
}

inline std::vector<std::string> families() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(references()))
        if (fs::exists(entry.path() / "config.json")) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

// Of a family, with settings of its config.json replaced where it has them.
inline models::Model build(const std::string& family, const models::ModelShape& shape,
                           const nlohmann::json& settings = {}) {
    nlohmann::json config = formats::read_json(references() / family / "config.json");
    for (const auto& [key, value] : settings.items())
        if (config.contains(key)) config[key] = value;
    if (config.contains("layer_types"))
        config["layer_types"] = nlohmann::json(config["num_hidden_layers"].get<std::size_t>(), "full_attention");
    return models::ModelSource(config, family).build(shape);
}

} // namespace tutti::testing

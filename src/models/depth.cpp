#include "models/depth.h"

#include <array>

namespace tutti::models {
namespace {

constexpr std::array keys = {"n_layer", "num_hidden_layers", "num_layers"};

bool is_count(const nlohmann::json& config, const char* key) {
    return config.contains(key) && config[key].is_number_integer();
}

} // namespace

std::int64_t layers_of(const ModelSource& source) {
    for (const char* key : keys)
        if (is_count(source.config(), key)) return source.config()[key].get<std::int64_t>();
    return 0;
}

ModelSource with_layers(const ModelSource& source, std::int64_t layers) {
    nlohmann::json config = source.config();
    const auto before = static_cast<std::size_t>(layers_of(source)), now = static_cast<std::size_t>(layers);
    for (auto& [key, value] : config.items()) {
        if (!value.is_array() || value.empty() || value.size() != before) continue;
        nlohmann::json all = nlohmann::json::array();
        for (std::size_t i = 0; i < now; ++i) all.push_back(value[i % before]);
        value = std::move(all);
    }
    for (const char* key : keys)
        if (is_count(config, key)) config[key] = layers;
    ModelSource result(std::move(config), source.where());
    return source.has_documents() ? result.with_documents() : result;
}

} // namespace tutti::models

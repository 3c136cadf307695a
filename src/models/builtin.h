// Models that need no folder: shapes of well-known models, and small ones over bytes to try things with. Each is a
// config.json as Transformers 5 would write it. All dropouts are 0, whatever the originals used.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::models {

struct BuiltinModel {
    std::string name;
    std::string summary; // one line for --help
    nlohmann::json config;
};

std::span<const BuiltinModel> builtin_models();
const BuiltinModel* find_builtin(std::string_view name); // nullptr where there is none
std::string builtin_names();                             // separated by commas

// The byte models' tokens are bytes; bert-tiny has these two more.
inline constexpr std::int64_t byte_vocabulary = 256, byte_mask_token = 256, byte_padding_token = 257;

} // namespace tutti::models

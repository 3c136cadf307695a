// TOML files: parsing with our sentences, and values as they are shown in them.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace tutti {

// Error naming `where` and the line.
toml::table parse_toml(std::string_view text, const std::string& where);

std::string describe(const toml::node& node); // "\"text\"", "3", "an array"

} // namespace tutti

// Text and tokens of models whose tokens are bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cli {

std::vector<std::int64_t> tokens_of_bytes(std::string_view text);
// A paragraph set in by two columns; lines are broken between words, and tabs are spaces.
std::string indented(std::string_view text, std::size_t columns);
// Where a run's folder is given, the model in it.
std::string model_in(const std::string& name_or_folder);

} // namespace tutti::cli

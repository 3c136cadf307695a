// Suggestions for a misspelt name: the nearest known one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Letters to insert, remove or replace, or neighbours to swap.
std::size_t edit_distance(std::string_view a, std::string_view b);
// The nearest of `known`, if it is near enough to be meant.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> known);
// "; did you mean X?", or nothing.
std::string suggestion(std::string_view name, std::span<const std::string> known);

} // namespace tutti

// Text in and out: numbers from what was typed, and words laid out in columns. Words and cells may come from files and
// names: they are laid out as name_to_show (terminal/shown.h) makes them.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::terminal {

std::vector<std::string> split(std::string_view text, char separator);
// The whole text is a number, and a finite one.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);
bool is_integer(std::string_view text); // of any size
// A string as TOML, in quotes.
std::string toml_string(std::string_view text);

// "1,234,567"
std::string with_commas(std::int64_t number);
// Three digits and the word for what they count: "70.6 billion", "124 million", "1,234".
std::string in_words(double count);
// Three digits and a unit of thousands: "5.12k", "124M"; before the name of a unit, "445 kFLOP".
std::string short_number(double number);
std::string short_number(double number, std::string_view unit);

// Amounts that stand below each other: all in the unit that suits the largest.
std::vector<std::string> in_one_unit(std::span<const Bytes> amounts);
std::vector<std::string> in_one_unit(std::span<const Seconds> times);

// Terms on the left, aligned; what belongs to each on the right, wrapped between words.
struct Definition {
    std::string term;
    std::vector<std::string> words;
};
struct DefinitionStyle {
    std::size_t indent = 2;
    std::size_t widest_term = 28; // a longer one stands on a line of its own
    std::string_view between = "  ";
};
std::string define(std::span<const Definition> definitions, std::size_t columns, const DefinitionStyle& style = {});

// Rows of cells, columns aligned: the first to the left, those in `right` to the right.
std::string lay_out(std::span<const std::vector<std::string>> rows, std::span<const std::size_t> right = {});

} // namespace tutti::terminal

// Texts in pieces: what patterns and pre-tokenizers cut, and where the cuts go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::text {

// A part of a text that matched, or that lies between matches.
struct Match {
    std::size_t begin = 0, end = 0;
    bool matched = false;

    bool operator==(const Match&) const = default;
};

// What becomes of a match that splits a text.
enum class SplitBehavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// The pieces, in order; some may be empty. `invert`: what lies between matches splits.
std::vector<Match> split(std::vector<Match> matches, SplitBehavior behavior, bool invert = false);

// A piece of an input on its way to the model. `at_start`: how many of its first bytes come from the beginning of the
// input, which may have been changed since: a rule for the first word alone asks for it.
struct Piece {
    std::string_view text;
    std::size_t at_start = 0;

    Piece part(std::size_t begin, std::size_t end) const;
    bool operator==(const Piece&) const = default;
};

} // namespace tutti::text

// Where a word may be cut so that byte pair encoding gives the same tokens for both parts. Models without a
// pre-tokenizer get whole texts as words; in parts, these come again and are remembered.
#pragma once

#include "text/flat_map.h"
#include "text/vocabulary.h"

#include <array>
#include <bitset>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::text {

// A merge joins two tokens, so it goes over a place between two characters only if one of its left tokens ends with the
// first and the right one begins with the second. That holds where both characters are tokens themselves: others stand
// for something that their token does not spell.
class BpeCuts {
  public:
    BpeCuts() = default; // nowhere
    BpeCuts(const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges);

    // The next such place behind `begin`, or the word's end.
    std::size_t next(std::string_view word, std::size_t begin) const;

  private:
    static constexpr std::size_t ascii = 0x80;
    static std::uint64_t key(char32_t left, char32_t right) { return std::uint64_t{left} << 32 | right; }
    bool may_be_cut(char32_t left, char32_t right) const;
    bool is_token(char32_t character) const;

    bool anywhere_ = false;
    std::array<std::bitset<ascii>, ascii> joined_ascii_{};
    std::bitset<ascii> ascii_tokens_{};
    FlatMap<char> joined_, tokens_; // with other characters
};

} // namespace tutti::text

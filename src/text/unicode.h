// Unicode as tokenizers need it: UTF-8, properties of characters, lower case, normal forms and grapheme clusters, with
// utf8proc's tables. Texts are valid UTF-8 from `check_utf8` on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::text {

constexpr char32_t last_character = 0x10FFFF, replacement_character = 0xFFFD;

// The first byte that does not belong to valid UTF-8; npos where all do.
std::size_t first_invalid(std::string_view text);
// Error that names `where`, for a text that is not UTF-8.
void check_utf8(std::string_view text, std::string_view where);
// Bytes as text: each longest piece that could have begun a character, and each other byte that is none, becomes
// U+FFFD.
std::string to_utf8(std::string_view bytes);

// How many bytes the character takes that begins with this byte.
constexpr std::size_t length_from(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
// The character at a place, which moves behind it.
char32_t next_character(std::string_view text, std::size_t& place);
// The place where the character before this one begins.
std::size_t before(std::string_view text, std::size_t place);
void append(std::string& text, char32_t character);
std::string utf8(char32_t character);
std::size_t count_characters(std::string_view text);
bool is_ascii(std::string_view text);

// General categories, as masks of one bit each.
namespace category {
using Mask = std::uint32_t;
Mask of(char32_t character);
// For BERT's rules, which the library has with the tables of 2015: marks and punctuation that are newer have none.
Mask in_unicode_8(char32_t character);
extern const Mask letter, mark, nonspacing_mark, number, decimal_digit, letter_number, punctuation,
    connector_punctuation, format_control_or_private;
} // namespace category

// White_Space, as Rust and Oniguruma have it.
bool is_space(char32_t character);
bool is_ascii_punctuation(char32_t character);
// \w of Rust's regular expressions: Alphabetic, marks, decimal digits, connecting punctuation, joiners.
bool is_word(char32_t character);

// Each character by itself: no final sigma, and U+0130 becomes two characters.
void append_lower(std::string& text, char32_t character);

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
std::string normalized(std::string_view text, NormalForm form);

// Where the grapheme cluster ends that begins at `place`.
std::size_t end_of_grapheme(std::string_view text, std::size_t place);

// str.replace of Rust: an empty pattern is found before every character and at the end.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view replacement);

} // namespace tutti::text

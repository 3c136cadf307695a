#include "text/unicode.h"

#include "base/error.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

namespace tutti::text {
namespace {

// How long the character at `place` is, or 0 where none is valid there; `examined` is how many bytes could have begun
// one.
std::size_t valid_length(std::string_view text, std::size_t place, std::size_t& examined) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[place + i]); };
    const unsigned char first = byte(0);
    examined = 1;
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return 0;
    const std::size_t length = length_from(text[place]);
    // The second byte rules out what is too long, surrogates, and what is beyond the last character.
    const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    for (std::size_t i = 1; i < length; ++i) {
        if (place + i == text.size()) return 0;
        if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return 0;
        ++examined;
    }
    return length;
}

// Characters that no normal form NFC changes, and that no character before them takes in.
bool is_composed(char32_t c) {
    return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x48A && c <= 0x52F) || (c >= 0x2010 && c <= 0x2027) ||
           (c >= 0x3041 && c <= 0x3098) || (c >= 0x309D && c <= 0x30FF) || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xAC00 && c <= 0xD7A3);
}

std::string mapped(std::string_view text, NormalForm form) {
    int options = UTF8PROC_STABLE;
    options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
    utf8proc_uint8_t* result = nullptr;
    const auto length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &result, static_cast<utf8proc_option_t>(options));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(result, &std::free);
    if (length == UTF8PROC_ERROR_NOMEM || length == UTF8PROC_ERROR_OVERFLOW)
        fail_world("a text of {} bytes is too long to be normalized", text.size());
    TUTTI_CHECK(length >= 0, "{}", utf8proc_errmsg(length));
    return std::string(reinterpret_cast<const char*>(result), static_cast<std::size_t>(length));
}

constexpr category::Mask mask(std::initializer_list<int> categories) {
    category::Mask all = 0;
    for (int one : categories) all |= 1u << one;
    return all;
}

} // namespace

std::size_t first_invalid(std::string_view text) {
    std::size_t place = 0, examined = 0;
    while (place < text.size()) {
        if (static_cast<unsigned char>(text[place]) < 0x80) {
            ++place;
            continue;
        }
        const std::size_t length = valid_length(text, place, examined);
        if (length == 0) return place;
        place += length;
    }
    return std::string_view::npos;
}

void check_utf8(std::string_view text, std::string_view where) {
    if (const std::size_t place = first_invalid(text); place != std::string_view::npos)
        fail("{} is not UTF-8: byte {} does not belong to a character", where, place);
}

std::string to_utf8(std::string_view bytes) {
    std::string text;
    text.reserve(bytes.size());
    for (std::size_t place = 0, examined = 0; place < bytes.size();) {
        const std::size_t length = valid_length(bytes, place, examined);
        if (length == 0)
            append(text, replacement_character);
        else
            text.append(bytes, place, length);
        place += examined;
    }
    return text;
}

char32_t next_character(std::string_view text, std::size_t& place) {
    const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[place + i])); };
    const char32_t first = byte(0);
    if (first < 0x80) return ++place, first;
    const std::size_t length = length_from(text[place]);
    TUTTI_CHECK(place + length <= text.size(), "a text that is not UTF-8");
    char32_t character = first & (0xFFu >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) character = character << 6 | (byte(i) & 0x3F);
    place += length;
    return character;
}

std::size_t before(std::string_view text, std::size_t place) {
    do --place;
    while (place > 0 && (static_cast<unsigned char>(text[place]) & 0xC0) == 0x80);
    return place;
}

void append(std::string& text, char32_t character) {
    const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (character < 0x80) return put(character);
    if (character < 0x800) {
        put(0xC0 | character >> 6);
    } else {
        if (character < 0x10000) {
            put(0xE0 | character >> 12);
        } else {
            put(0xF0 | character >> 18);
            put(0x80 | (character >> 12 & 0x3F));
        }
        put(0x80 | (character >> 6 & 0x3F));
    }
    put(0x80 | (character & 0x3F));
}

std::string utf8(char32_t character) {
    std::string text;
    append(text, character);
    return text;
}

std::size_t count_characters(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

bool is_ascii(std::string_view text) {
    return std::ranges::all_of(text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

namespace category {

Mask of(char32_t character) { return 1u << utf8proc_category(static_cast<utf8proc_int32_t>(character)); }

constexpr Mask letter = mask(
    {UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO});
constexpr Mask mark = mask({UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME});
constexpr Mask nonspacing_mark = mask({UTF8PROC_CATEGORY_MN});
constexpr Mask number = mask({UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO});
constexpr Mask decimal_digit = mask({UTF8PROC_CATEGORY_ND});
constexpr Mask letter_number = mask({UTF8PROC_CATEGORY_NL});
constexpr Mask punctuation =
    mask({UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PS, UTF8PROC_CATEGORY_PE, UTF8PROC_CATEGORY_PI,
          UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PO});
constexpr Mask connector_punctuation = mask({UTF8PROC_CATEGORY_PC});
constexpr Mask format_control_or_private = mask({UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CO});

} // namespace category

bool is_space(char32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_ascii_punctuation(char32_t c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

bool is_word(char32_t c) {
    using namespace category;
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if ((of(c) & (letter | mark | decimal_digit | letter_number | connector_punctuation)) != 0) return true;
    // Joiners, and the letters in circles and squares, which are Alphabetic and symbols.
    return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

void append_lower(std::string& text, char32_t character) {
    if (character < 0x80) {
        text += static_cast<char>(character >= 'A' && character <= 'Z' ? character + 32 : character);
    } else if (character == 0x130) { // the one character whose lower case is two
        append(text, 'i');
        append(text, 0x307);
    } else {
        append(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
}

std::string normalized(std::string_view text, NormalForm form) {
    if (is_ascii(text)) return std::string(text);
    if (form != NormalForm::nfc) return mapped(text, form);
    // Most text is composed already: only what is not goes to utf8proc, with the character before it.
    std::string result;
    result.reserve(text.size());
    std::size_t done = 0, last = 0; // what is in `result`; where the last character begins
    for (std::size_t place = 0; place < text.size();) {
        const std::size_t begin = place;
        if (is_composed(next_character(text, place))) {
            last = begin;
            continue;
        }
        while (place < text.size()) {
            std::size_t next = place;
            if (is_composed(next_character(text, next))) break;
            place = next;
        }
        result.append(text, done, last - done);
        result += mapped(text.substr(last, place - last), form);
        done = last = place;
    }
    return result.append(text, done);
}

std::size_t end_of_grapheme(std::string_view text, std::size_t place) {
    char32_t previous = next_character(text, place);
    utf8proc_int32_t state = 0;
    while (place < text.size()) {
        std::size_t next = place;
        const char32_t character = next_character(text, next);
        if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                             static_cast<utf8proc_int32_t>(character), &state))
            break;
        previous = character;
        place = next;
    }
    return place;
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view replacement) {
    std::string result;
    if (pattern.empty()) {
        for (std::size_t place = 0; place < text.size();) {
            const std::size_t length = length_from(text[place]);
            result.append(replacement).append(text.substr(place, length));
            place += length;
        }
        return result.append(replacement);
    }
    std::size_t done = 0;
    for (std::size_t found; (found = text.find(pattern, done)) != std::string_view::npos; done = found + pattern.size())
        result.append(text, done, found - done).append(replacement);
    return result.append(text, done);
}

} // namespace tutti::text

#include "text/byte_level.h"

#include "text/unicode.h"

#include <array>
#include <cstdint>

namespace tutti::text {
namespace {

// Printable bytes of Latin-1 stand for themselves; the others, in their order, for the characters from U+0100 on.
constexpr bool is_printable(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
    std::array<char32_t, 256> characters{};
    std::array<std::int16_t, 0x200> bytes{};

    constexpr Alphabet() {
        bytes.fill(-1);
        char32_t next = 0x100;
        for (unsigned byte = 0; byte < 256; ++byte) {
            characters[byte] = is_printable(byte) ? byte : next++;
            bytes[characters[byte]] = static_cast<std::int16_t>(byte);
        }
    }
};
constexpr Alphabet alphabet;

} // namespace

char32_t character_of_byte(unsigned char byte) { return alphabet.characters[byte]; }

std::string to_byte_characters(std::string_view bytes) {
    std::string text;
    text.reserve(2 * bytes.size());
    for (char byte : bytes) append(text, character_of_byte(static_cast<unsigned char>(byte)));
    return text;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
    std::string bytes;
    for (std::size_t place = 0; place < text.size();) {
        const char32_t character = next_character(text, place);
        if (character >= alphabet.bytes.size() || alphabet.bytes[character] < 0) return std::nullopt;
        bytes += static_cast<char>(static_cast<unsigned char>(alphabet.bytes[character]));
    }
    return bytes;
}

} // namespace tutti::text

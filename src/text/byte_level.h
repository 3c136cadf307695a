// GPT-2's alphabet for bytes: every byte as one printable character, so that tokens of any bytes can stand in a file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::text {

char32_t character_of_byte(unsigned char byte);
std::string to_byte_characters(std::string_view bytes);
// Nothing where a character stands for no byte.
std::optional<std::string> from_byte_characters(std::string_view text);

} // namespace tutti::text

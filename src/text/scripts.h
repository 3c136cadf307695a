// The script of a character, for the pre-tokenizer that splits where scripts change.
#pragma once

#include <cstdint>

namespace tutti::text {

constexpr std::uint8_t no_script = 0; // it belongs to the text before it
std::uint8_t script_of(char32_t character);

} // namespace tutti::text

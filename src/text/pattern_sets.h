// Sets of characters that patterns name, as bodies of PCRE2 classes: what stands between [ and ].
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::text {

struct CharacterSet {
    std::string body;
    bool negated = false;

    std::string as_class() const { return (negated ? "[^" : "[") + body + "]"; }
};

// As Oniguruma has them; PCRE2's \s takes U+180E, and its \w neither marks nor all connecting punctuation.
constexpr std::string_view space_body = "\\x09-\\x0D\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"
                                        "\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view digit_body = "\\p{Nd}";
constexpr std::string_view word_body = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
                                       "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
constexpr std::string_view hexadecimal_body = "0-9A-Fa-f";

// [:name:]; nothing where there is no such set.
std::optional<std::string> posix_body(std::string_view name);
// \p{name}: general categories, scripts, binary properties, and the names of [:name:]; nothing for blocks.
std::optional<std::string> property_body(std::string_view name);

} // namespace tutti::text

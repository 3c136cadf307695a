// Patterns of tokenizer.json are written for Oniguruma, with its Ruby syntax, and are matched by PCRE2 here. Where the
// two read the same signs differently, the pattern is translated; what has no translation is refused by name.
#pragma once

#include <string>
#include <string_view>

namespace tutti::text {

// The pattern as PCRE2 reads it with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE. Error that names `where`, the pattern
// and the part of it that cannot be translated.
std::string translate_pattern(std::string_view pattern, const std::string& where);

} // namespace tutti::text

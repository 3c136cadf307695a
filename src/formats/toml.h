// TOML files: parsing with our sentences, and values as they are shown in them. The only header that includes toml++,
// so that all sources see it with the same settings.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

// toml++ trusts its assertions to hold, and some texts break them.
struct TomlAssertion {
    const char* expression;
};
[[noreturn]] void throw_toml_assertion(const char* expression);

} // namespace tutti

#define TOML_ASSERT(expression) ((expression) ? void() : ::tutti::throw_toml_assertion(#expression))
#define TOML_MAX_NESTED_VALUES 16 // arrays and tables in one value
#pragma push_macro("NDEBUG")      // with it, the compiler is told that the assertions hold
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace tutti {

// Error naming `where` and the line.
toml::table parse_toml(std::string_view text, const std::string& where);

std::string describe(const toml::node& node); // "\"text\"", "3", "an array"

} // namespace tutti

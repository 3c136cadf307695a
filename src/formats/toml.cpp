#include "formats/toml.h"

#include "base/error.h"
#include "formats/json.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <vector>

namespace tutti::formats {

namespace {

// Tables are nested by dots in keys, too, and that toml++ does not limit: each level is a call when they are destroyed.
constexpr int most_parts = 16; // of a key

// Skips a string that begins at `at`, in quotes of one kind, which may be tripled.
std::size_t end_of_string(std::string_view text, std::size_t at) {
    const char quote = text[at];
    const bool tripled = text.substr(at, 3) == std::string(3, quote);
    for (at += tripled ? 3 : 1; at < text.size(); ++at) {
        if (text[at] == '\\' && quote == '"')
            ++at;
        else if (text[at] == '\n' && !tripled)
            return at; // a mistake, and told as one later
        else if (text[at] == quote && (!tripled || text.substr(at, 3) == std::string(3, quote)))
            return at + (tripled ? 3 : 1);
    }
    return text.size();
}

// Dots outside of strings and comments are those of keys and of numbers, which have one.
void check_keys(std::string_view text, const std::string& where) {
    int dots = 0, line = 1;
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        if (c == '"' || c == '\'') {
            const std::size_t end = end_of_string(text, at);
            line += static_cast<int>(std::count(text.begin() + at, text.begin() + std::min(end, text.size()), '\n'));
            at = end;
            continue;
        }
        if (c == '#') {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        if (c == '\n') ++line;
        if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots = 0;
        if (c == '.' && ++dots == most_parts) fail("{}, line {}: a key of more than {} parts", where, line, most_parts);
        ++at;
    }
}

// The first line without which the text would not break an assertion: toml++ reads from left to right.
std::size_t line_of_assertion(std::string_view text) {
    std::vector<std::size_t> ends; // of lines
    for (std::size_t at = 0; at < text.size(); ends.push_back(at))
        at = std::min(text.find('\n', at), text.size() - 1) + 1;
    const auto breaks = [&](std::size_t end) {
        try {
            static_cast<void>(toml::parse(text.substr(0, end)));
        } catch (const toml::parse_error&) { // of what is cut off
        } catch (const TomlAssertion&) {
            return true;
        }
        return false;
    };
    return 1 + static_cast<std::size_t>(std::ranges::partition_point(ends, std::not_fn(breaks)) - ends.begin());
}

} // namespace

void throw_toml_assertion(const char* expression) { throw TomlAssertion{expression}; }

toml::table parse_toml(std::string_view text, const std::string& where) {
    check_keys(text, where);
    try {
        return toml::parse(text, where);
    } catch (const toml::parse_error& error) {
        fail("{}, line {}: {}", where, error.source().begin.line, error.description());
    } catch (const TomlAssertion&) {
        fail("{}, line {}: this is not TOML; keys are letters, digits, '-' and '_', or strings", where,
             line_of_assertion(text));
    }
}

std::string describe(const toml::node& node) {
    if (const auto* text = node.as_string()) return in_quotes(text->get());
    if (node.is_table()) return "a table";
    if (node.is_array()) return "an array";
    std::ostringstream stream;
    node.visit([&](const auto& value) { stream << value; });
    return stream.str();
}

} // namespace tutti::formats

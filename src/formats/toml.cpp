#include "formats/toml.h"

#include "base/error.h"
#include "formats/json.h"

#include <sstream>

namespace tutti {

toml::table parse_toml(std::string_view text, const std::string& where) {
    try {
        return toml::parse(text, where);
    } catch (const toml::parse_error& error) {
        fail("{}, line {}: {}", where, error.source().begin.line, error.description());
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

} // namespace tutti

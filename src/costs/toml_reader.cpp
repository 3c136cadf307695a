#include "costs/toml_reader.h"

#include "base/error.h"
#include "base/limits.h"
#include "base/nearest.h"
#include "formats/json.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::costs {
namespace {

std::pair<Limits, std::string_view> limits_of(Measure measure) {
    switch (measure) {
    case Measure::bytes: return {{1, static_cast<double>(limits::bytes)}, "B"};
    case Measure::rate: return {limits::rate, "B/s"};
    case Measure::flops: return {limits::flops, "FLOP/s"};
    case Measure::seconds: return {limits::duration, "s"};
    }
    TUTTI_CHECK(false, "measure {}", static_cast<int>(measure));
}

// A terminal would take them for commands.
bool has_control_characters(std::string_view text) {
    return std::ranges::any_of(text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; });
}

} // namespace

const toml::node* TomlReader::find(const std::string& key) {
    known_.insert(key);
    return table_.get(key);
}

void TomlReader::fail_at(const toml::node* node, const std::string& sentence) const {
    fail("{}, line {}: {}", where_, (node ? *node : table_).source().begin.line, sentence);
}

void TomlReader::fail_value(const std::string& key, const toml::node& node, std::string_view expected) const {
    fail_at(&node, fmt::format("{} is {}, and should be {}", key, formats::describe(node), expected));
}

std::optional<std::int64_t> TomlReader::find_integer(const std::string& key, std::int64_t least, std::int64_t most) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    const auto* integer = node->as_integer();
    if (!integer || integer->get() < least || integer->get() > most)
        fail_value(key, *node, fmt::format("an integer from {} to {}", least, most));
    return integer->get();
}

std::optional<std::string> TomlReader::find_text(const std::string& key) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    const auto* text = node->as_string();
    if (!text || text->get().empty() || text->get().size() > 200) fail_value(key, *node, "a text of 1 to 200 letters");
    if (has_control_characters(text->get())) fail_value(key, *node, "a text without control characters");
    return text->get();
}

std::optional<double> TomlReader::find_quantity(const std::string& key, Measure measure, bool may_be_zero) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    std::optional<double> value;
    if (const auto* text = node->as_string())
        value = parse_quantity(text->get(), measure);
    else if (node->is_number())
        value = node->value<double>();
    if (!value || !std::isfinite(*value)) fail_value(key, *node, fmt::format("as in {}", example_of(measure)));
    const auto [limits, unit] = limits_of(measure);
    if (!(may_be_zero ? limits.or_zero() : limits).hold(*value))
        fail_value(key, *node,
                   fmt::format("from {0} {2} to {1} {2}", may_be_zero ? 0 : limits.least, limits.most, unit));
    return value;
}

std::optional<double> TomlReader::find_share(const std::string& key) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value || !limits::share.hold(*value)) fail_value(key, *node, "a number " + limits::share.text());
    return value;
}

const toml::table* TomlReader::find_table(const std::string& key) {
    const toml::node* node = find(key);
    if (!node) return nullptr;
    if (!node->is_table()) fail_value(key, *node, "a table");
    return node->as_table();
}

std::vector<const toml::table*> TomlReader::tables(const std::string& key) {
    const toml::node* node = find(key);
    if (!node) return {};
    std::vector<const toml::table*> all;
    const auto* array = node->as_array();
    if (!array) fail_value(key, *node, fmt::format("tables: [[{}]]", key));
    for (const toml::node& element : *array) {
        if (!element.is_table()) fail_value(key, element, fmt::format("tables: [[{}]]", key));
        all.push_back(element.as_table());
    }
    return all;
}

void TomlReader::finish() const {
    for (const auto& [key, node] : table_) {
        const std::string name(key.str());
        if (known_.contains(name)) continue;
        const std::vector<std::string> names(known_.begin(), known_.end());
        fail("{}, line {}: unknown key {}{}", where_, key.source().begin.line, formats::in_quotes(name),
             suggestion(name, names));
    }
}

} // namespace tutti::costs

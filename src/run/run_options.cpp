#include "run/run_options.h"

#include "base/error.h"
#include "base/nearest.h"
#include "formats/json.h"
#include "formats/text_file.h"
#include "formats/toml.h"
#include "run/foreign_names.h"
#include "terminal/words.h"

#include <algorithm>

namespace tutti::run {
namespace {

std::optional<SettingValue> parse_as(const SettingValue& model, const std::string& text) {
    if (std::holds_alternative<std::string>(model)) return text;
    if (std::holds_alternative<std::int64_t>(model)) return terminal::parse_integer(text);
    if (std::holds_alternative<double>(model)) return terminal::parse_real(text);
    if (std::holds_alternative<bool>(model)) {
        if (text == "true" || text == "on") return true;
        if (text == "false" || text == "off") return false;
        return std::nullopt;
    }
    std::vector<double> numbers;
    for (const std::string& part : terminal::split(text, ',')) {
        const auto number = terminal::parse_real(part);
        if (!number) return std::nullopt;
        numbers.push_back(*number);
    }
    return numbers;
}

std::optional<SettingValue> value_of_node(const toml::node& node) {
    if (const auto* flag = node.as_boolean()) return flag->get();
    if (const auto* whole = node.as_integer()) return whole->get();
    if (const auto* number = node.as_floating_point()) return number->get();
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* array = node.as_array()) {
        std::vector<double> numbers;
        for (const toml::node& element : *array) {
            const auto number = element.value<double>();
            if (!number) return std::nullopt;
            numbers.push_back(*number);
        }
        return numbers;
    }
    return std::nullopt;
}

// What would be right instead of `text`: an integer that is too large or too small is told where the range ends.
std::string expected_for(const RunOption& option, std::string_view text, const char* betas) {
    if (option.key == "betas") return betas;
    if (option.largest == 0 || !terminal::is_integer(text)) return option.expected;
    return text.starts_with('-') ? "an integer from 0" : fmt::format("an integer up to {}", option.largest);
}

[[noreturn]] void fail_unknown(const std::string& key, const std::string& where) {
    if (const std::string answer = answer_to_foreign_name(key); !answer.empty()) fail("{}: {}", where, answer);
    std::vector<std::string> keys;
    for (const RunOption& option : run_options()) keys.push_back(option.key);
    fail("{}: unknown key {}{}", where, formats::in_quotes(key), suggestion(key, keys));
}

} // namespace

std::string flag_of(std::string_view key) {
    std::string name = "--" + std::string(key);
    std::ranges::replace(name, '_', '-');
    return name;
}

std::string RunOption::flag() const { return flag_of(key); }

const RunOption* find_run_option(std::string_view key) {
    const auto found = std::ranges::find_if(run_options(), [&](const RunOption& option) {
        return option.key == key || std::ranges::find(option.older, key) != option.older.end();
    });
    return found == run_options().end() ? nullptr : &*found;
}

void set_from_text(RunConfig& config, const RunOption& option, const std::string& text, const std::string& name) {
    const auto value = parse_as(option.get(config), text);
    if (value && option.set(config, *value)) return;
    const std::string shown = option.positional() ? option.operand : name.empty() ? option.flag() : name;
    fail("{} is {}, and should be {}", shown, formats::in_quotes(text),
         expected_for(option, text, "two numbers, as in 0.9,0.95"));
}

std::vector<std::string> parse_run_config(RunConfig& config, std::string_view text, const std::string& where) {
    const toml::table table = formats::parse_toml(text, where);
    std::vector<std::string> keys;
    for (const auto& [key, node] : table) {
        const std::string name(key.str());
        const auto line = key.source().begin.line;
        const RunOption* option = find_run_option(name);
        if (!option) fail_unknown(name, fmt::format("{}, line {}", where, line));
        if (std::ranges::find(keys, option->key) != keys.end())
            fail("{}, line {}: {} was given before by another of its names; {} is the one of today", where, line, name,
                 option->key);
        keys.push_back(option->key);
        const auto value = value_of_node(node);
        try {
            if (value && option->set(config, *value)) continue;
        } catch (const Error& error) {
            fail("{}, line {}: {}", where, line, error.what());
        }
        fail("{}, line {}: {} is {}, and should be {}", where, line, name, tutti::formats::describe(node),
             expected_for(*option, node.is_integer() ? tutti::formats::describe(node) : "",
                          "two numbers, as in [0.9, 0.95]"));
    }
    return keys;
}

std::vector<std::string> read_run_config(RunConfig& config, const fs::path& path) {
    return parse_run_config(config, formats::read_text_file(path, "a config file", 1 << 20), path.string());
}

std::string to_toml(const SettingValue& value) {
    auto real = [](double number) {
        const std::string text = fmt::format("{}", number); // the shortest that reads back the same
        return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    };
    if (const auto* text = std::get_if<std::string>(&value)) return terminal::toml_string(*text);
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
    if (const auto* number = std::get_if<double>(&value)) return real(*number);
    std::string text;
    for (double number : std::get<std::vector<double>>(value)) text += (text.empty() ? "[" : ", ") + real(number);
    return text + "]";
}

std::string to_toml(const RunConfig& config) {
    return to_toml(config, [](const RunOption&) { return true; });
}

std::string to_toml(const RunConfig& config, const std::function<bool(const RunOption&)>& is_kept) {
    std::string text, group;
    for (const RunOption& option : run_options()) {
        if (!is_kept(option)) continue;
        if (option.group != group) text += fmt::format("\n# {}\n", group = option.group);
        text += fmt::format("{} = {}\n", option.key, to_toml(option.get(config)));
    }
    return text;
}

std::string to_lines(const RunConfig& config, std::size_t columns) {
    std::vector<terminal::Definition> groups;
    for (const RunOption& option : run_options()) {
        if (groups.empty() || groups.back().term != option.group) groups.push_back({option.group, {}});
        const std::string value = to_plain(option.get(config));
        if (!value.empty()) groups.back().words.push_back(option.key + " " + value);
    }
    return terminal::define(groups, columns);
}

} // namespace tutti::run

#include "terminal/words.h"

#include "formats/json.h"
#include "terminal/shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace tutti::terminal {

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (true) {
        const std::size_t end = text.find(separator);
        parts.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

namespace {

template <class T>
std::optional<T> parse_whole(std::string_view text) {
    if (text.starts_with('+')) text.remove_prefix(1);
    T number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return number;
}

} // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse_whole<std::int64_t>(text); }

std::optional<double> parse_real(std::string_view text) {
    const auto number = parse_whole<double>(text);
    return number && std::isfinite(*number) ? number : std::nullopt;
}

bool is_integer(std::string_view text) {
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    return !text.empty() && std::ranges::all_of(text, [](char digit) { return digit >= '0' && digit <= '9'; });
}

std::string toml_string(std::string_view text) {
    // JSON's escapes are TOML's too; but TOML wants one for the delete character as well.
    std::string quoted = formats::json_string(text);
    for (std::size_t place = 0; (place = quoted.find('\x7f', place)) != std::string::npos;)
        quoted.replace(place, 1, "\\u007f");
    return quoted;
}

std::string with_commas(std::int64_t number) {
    std::string text = std::to_string(number);
    for (std::size_t place = text.size(); place > 3 + (number < 0);) text.insert(place -= 3, ",");
    return text;
}

std::string in_words(double count) {
    static constexpr std::array<std::pair<double, const char*>, 3> words = {
        {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}}};
    for (const auto& [size, word] : words)
        if (std::abs(count) >= 0.9995 * size) return fmt::format("{:.3g} {}", count / size, word);
    return with_commas(std::llround(count));
}

std::string short_number(double number) {
    static constexpr std::array units = {"", "k", "M", "G", "T", "P", "E", "Z"};
    std::size_t unit = 0;
    while (std::abs(number) >= 999.5 && unit + 1 < units.size()) {
        number /= 1000;
        ++unit;
    }
    return fmt::format("{:.3g}{}", number, units[unit]);
}

std::string short_number(double number, std::string_view unit) {
    std::string text = short_number(number);
    const std::size_t digits = text.find_last_of("0123456789") + 1;
    return text.insert(digits, " ").append(unit);
}

std::vector<std::string> in_one_unit(std::span<const Bytes> amounts) {
    static constexpr std::array names = {"B", "KiB", "MiB", "GiB", "TiB"};
    double most = 0;
    for (Bytes one : amounts) most = std::max(most, std::abs(static_cast<double>(one.count)));
    std::size_t unit = 0;
    double size = 1;
    for (; most / size >= 1024 && unit + 1 < names.size(); ++unit) size *= 1024;
    std::vector<std::string> texts;
    for (Bytes one : amounts)
        texts.push_back(one.count == 0 ? "0"
                        : unit == 0    ? fmt::format("{} B", one.count)
                                       : fmt::format("{:.2f} {}", static_cast<double>(one.count) / size, names[unit]));
    return texts;
}

std::vector<std::string> in_one_unit(std::span<const Seconds> times) {
    double most = 0;
    for (Seconds one : times) most = std::max(most, one.count);
    const auto [name, size] = most >= 1      ? std::pair("s", 1.0)
                              : most >= 1e-3 ? std::pair("ms", 1e-3)
                                             : std::pair("us", 1e-6);
    const int digits = most / size >= 1000 ? 1 : most / size >= 100 ? 2 : 3;
    std::vector<std::string> texts;
    for (Seconds one : times) texts.push_back(fmt::format("{:.{}f} {}", one.count / size, digits, name));
    return texts;
}

namespace {

std::vector<std::string> names_to_show(std::span<const std::string> names) {
    std::vector<std::string> shown;
    for (const std::string& name : names) shown.push_back(name_to_show(name));
    return shown;
}

} // namespace

std::string define(std::span<const Definition> given, std::size_t columns, const DefinitionStyle& style) {
    std::vector<Definition> definitions;
    for (const Definition& one : given) definitions.push_back({name_to_show(one.term), names_to_show(one.words)});
    std::size_t width = 0;
    for (const Definition& definition : definitions)
        if (definition.term.size() <= style.widest_term) width = std::max(width, definition.term.size());
    const std::size_t start = style.indent + width + 2;
    std::string text;
    for (const Definition& definition : definitions) {
        std::string line = std::string(style.indent, ' ') + definition.term;
        if (line.size() + 2 > start) text += std::exchange(line, "") + '\n';
        line.resize(start, ' ');
        bool fresh = true;
        for (const std::string& word : definition.words) {
            if (!fresh && line.size() + style.between.size() + word.size() > columns) {
                text += std::exchange(line, std::string(start, ' ')) + '\n';
                fresh = true;
            }
            if (!fresh) line += style.between;
            line += word;
            fresh = false;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

namespace {

// Of UTF-8, in characters.
std::size_t width_of(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

} // namespace

std::string lay_out(std::span<const std::vector<std::string>> given, std::span<const std::size_t> right) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : given) rows.push_back(names_to_show(row));
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line = " ";
        for (std::size_t i = 0; i < row.size(); ++i) {
            const bool to_right = std::ranges::find(right, i) != right.end();
            line += to_right ? fmt::format(" {:>{}} ", row[i], widths[i]) : fmt::format(" {:<{}} ", row[i], widths[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

} // namespace tutti::terminal

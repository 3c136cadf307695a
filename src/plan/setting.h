// Setting: a named value of a run that a user can give as text: by flag, or as a key of a TOML file. It knows the field
// of a struct that it sets, what is expected there, and how the field is set and shown.
#pragma once

#include "base/units.h"
#include "plan/zero.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {

// As TOML has it.
using SettingValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>>;

// As a person would write it.
std::string to_plain(const SettingValue& value);

template <class Owner>
struct Setting {
    std::string expected;     // "an integer", as in "--steps is x, and should be an integer"
    std::int64_t largest = 0; // of an integer; 0 for others
    std::function<bool(Owner&, const SettingValue&)> set; // false where the value does not fit
    std::function<SettingValue(const Owner&)> get;
};

// A path leads from a struct to one of its fields, or to a field of a struct within it.
template <class Owner, class T>
auto path(T Owner::*field) {
    return [field](auto& owner) -> auto& { return owner.*field; };
}
template <class Owner, class Part, class T>
auto path(Part Owner::*part, T Part::*field) {
    return [ part, field ](auto& owner) -> auto& { return owner.*part.*field; };
}

namespace setting_values {

inline bool assign(std::string& field, const SettingValue& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text) field = *text;
    return text != nullptr;
}

inline bool assign(bool& field, const SettingValue& value) {
    const auto* word = std::get_if<std::string>(&value);
    const auto* flag = std::get_if<bool>(&value);
    if (flag != nullptr)
        field = *flag;
    else if (word != nullptr && (*word == "on" || *word == "off"))
        field = *word == "on";
    else
        return false;
    return true;
}

template <std::integral T>
bool assign(T& field, const SettingValue& value) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (!number || !std::in_range<T>(*number)) return false;
    field = static_cast<T>(*number);
    return true;
}

inline bool assign(Zero& field, const SettingValue& value) {
    int stage = 0;
    if (!assign(stage, value)) return false;
    field = stage;
    return true;
}

inline bool assign(double& field, const SettingValue& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        field = static_cast<double>(*whole);
        return true;
    }
    const auto* number = std::get_if<double>(&value);
    if (!number || !std::isfinite(*number)) return false;
    field = *number;
    return true;
}

inline SettingValue value_of(const std::string& field) { return field; }
inline SettingValue value_of(bool field) { return field; }
inline SettingValue value_of(double field) { return field; }
inline SettingValue value_of(Zero field) { return std::int64_t{field.stage()}; }
template <std::integral T>
SettingValue value_of(T field) {
    return static_cast<std::int64_t>(field);
}

inline std::string expected_of(const std::string&) { return "text"; }
inline std::string expected_of(bool) { return "true or false"; }
inline std::string expected_of(double) { return "a number"; }
inline std::string expected_of(Zero) { return "an integer"; }
template <std::integral T>
std::string expected_of(T) {
    return std::is_unsigned_v<T> ? "an integer from 0" : "an integer";
}

template <class T>
constexpr std::int64_t largest_of() {
    if constexpr (std::same_as<T, Zero>)
        return largest_of<int>();
    else if constexpr (!std::integral<T> || std::same_as<T, bool>)
        return 0;
    else
        return static_cast<std::int64_t>(
            std::min<std::uint64_t>(static_cast<std::uint64_t>(std::numeric_limits<T>::max()), INT64_MAX));
}

} // namespace setting_values

// Text, a number, or true and false.
template <class Owner, class Path>
Setting<Owner> plain_setting(Path path) {
    using T = std::remove_cvref_t<std::invoke_result_t<Path, Owner&>>;
    return {setting_values::expected_of(T{}), setting_values::largest_of<T>(),
            [path](Owner& owner, const SettingValue& value) { return setting_values::assign(path(owner), value); },
            [path](const Owner& owner) { return setting_values::value_of(path(owner)); }};
}

// A value that is written as text and stands for something else: `parse` gives nothing where the text does not fit.
template <class Owner, class Path, class Parse, class Show>
Setting<Owner> text_setting(Path path, std::string expected, Parse parse, Show show) {
    return {std::move(expected), 0,
            [path, parse](Owner& owner, const SettingValue& value) {
                const auto* text = std::get_if<std::string>(&value);
                const auto parsed = parse(text ? *text : to_plain(value));
                if (parsed) path(owner) = *parsed;
                return parsed.has_value();
            },
            [path, show](const Owner& owner) -> SettingValue { return std::string(show(path(owner))); }};
}

// A switch whose state is written out: --sub-pipeline on.
template <class Owner, class Path>
Setting<Owner> switch_setting(Path path) {
    auto parse = [](std::string_view text) -> std::optional<bool> {
        if (text == "on" || text == "yes") return true; // yes, no: a TOML boolean
        if (text == "off" || text == "no") return false;
        return std::nullopt;
    };
    return text_setting<Owner>(path, "on or off", parse, [](bool on) { return on ? "on" : "off"; });
}

template <class Owner, class Path>
Setting<Owner> size_setting(Path path) {
    return text_setting<Owner>(path, "a size such as 256MB or 24GiB", parse_bytes,
                               [](Bytes size) { return std::to_string(size.count); });
}

} // namespace tutti

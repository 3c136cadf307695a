#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace tutti {

std::string to_string(Bytes bytes) {
    static constexpr std::array names = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes.count);
    std::size_t unit = 0;
    while (std::abs(value) >= 1024 && unit + 1 < names.size()) {
        value /= 1024;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} B", bytes.count) : fmt::format("{:.2f} {}", value, names[unit]);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
    double number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !(number >= 0)) return std::nullopt;
    std::string unit(rest, text.data() + text.size());
    while (unit.starts_with(' ')) unit.erase(0, 1);
    static constexpr std::string_view prefixes = "kmgt";
    for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    double factor = 1;
    if (!unit.empty() && unit != "b") {
        const std::size_t prefix = prefixes.find(unit[0]);
        const std::string_view end = std::string_view(unit).substr(1);
        if (prefix == std::string_view::npos || (end != "" && end != "b" && end != "ib")) return std::nullopt;
        factor = std::pow(end == "ib" ? 1024.0 : 1000.0, static_cast<double>(prefix) + 1);
    }
    if (number * factor > 9e18) return std::nullopt;
    return Bytes{std::llround(number * factor)};
}

std::string to_string(Seconds seconds) {
    const double s = seconds.count;
    if (s < 1e-3) return fmt::format("{:.0f} us", s * 1e6);
    if (s < 10) return fmt::format("{:.0f} ms", s * 1e3);
    if (s < 60) return fmt::format("{:.0f} s", s);
    const auto whole = static_cast<std::int64_t>(std::llround(s));
    if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
    return fmt::format("{} h {:02} m", whole / 3600, whole / 60 % 60);
}

} // namespace tutti

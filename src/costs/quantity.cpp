#include "costs/quantity.h"

#include <charconv>
#include <cmath>

namespace tutti::costs {
namespace {

// 1000^n or 1024^n of a prefix such as "G" or "Gi", which is taken off.
std::optional<double> take_prefix(std::string_view& unit) {
    constexpr std::string_view letters = "kMGTP";
    if (unit.empty()) return std::nullopt;
    const char first = unit[0] == 'K' ? 'k' : unit[0];
    const std::size_t place = letters.find(first);
    if (place == std::string_view::npos) return 1;
    const bool binary = unit.size() > 1 && unit[1] == 'i';
    unit.remove_prefix(binary ? 2 : 1);
    return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(place + 1));
}

std::optional<double> factor_of(std::string_view unit, Measure measure) {
    if (measure == Measure::seconds) {
        if (unit == "s") return 1;
        if (unit == "ms") return 1e-3;
        if (unit == "us") return 1e-6;
        if (unit == "ns") return 1e-9;
        return std::nullopt;
    }
    const auto prefix = take_prefix(unit);
    if (!prefix) return std::nullopt;
    if (measure == Measure::bytes) return unit == "B" ? prefix : std::nullopt;
    if (measure == Measure::flops) return unit == "FLOP/s" || unit == "FLOPS" ? prefix : std::nullopt;
    if (unit == "B/s") return prefix;
    if (unit == "b/s" || unit == "bit/s") return *prefix / 8;
    return std::nullopt;
}

} // namespace

std::optional<double> parse_quantity(std::string_view text, Measure measure) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    const auto factor = factor_of(text, measure);
    if (!factor) return std::nullopt;
    return number * *factor;
}

std::string_view example_of(Measure measure) {
    switch (measure) {
    case Measure::bytes: return "\"80 GiB\"";
    case Measure::rate: return "\"25 GB/s\" or \"200 Gb/s\"";
    case Measure::flops: return "\"312 TFLOP/s\"";
    case Measure::seconds: return "\"5 us\"";
    }
    return "";
}

} // namespace tutti::costs

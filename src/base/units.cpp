#include "base/units.h"

#include <fmt/format.h>

#include <array>
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

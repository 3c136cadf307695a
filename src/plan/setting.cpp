#include "plan/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti {

std::string to_plain(const SettingValue& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
    if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
    return fmt::format("{}", fmt::join(std::get<std::vector<double>>(value), ","));
}

} // namespace tutti

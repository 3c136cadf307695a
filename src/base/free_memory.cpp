#include "base/free_memory.h"

#include <algorithm>

namespace tutti {
namespace {

struct GroupFiles { // of a version of control groups
    GroupVersion version;
    const char *limit, *used, *inactive, *active;
};
constexpr GroupFiles version_1 = {GroupVersion::one, "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file ", "total_active_file "};
constexpr GroupFiles version_2 = {GroupVersion::two, "/memory.max", "/memory.current", "inactive_file ",
                                  "active_file "};

std::optional<std::int64_t> left_in(const GroupFiles& version, const std::string& folder, const SystemText& text) {
    auto number = [&](const char* file) { return number_after("", text(folder + file).value_or("")); };
    const auto limit = number(version.limit), used = number(version.used);
    if (!limit || !used) return std::nullopt;
    const std::string details = text(folder + "/memory.stat").value_or("");
    const std::int64_t files =
        number_after(version.inactive, details).value_or(0) + number_after(version.active, details).value_or(0);
    return std::max<std::int64_t>(*limit - std::max<std::int64_t>(*used - files, 0), 0);
}

std::optional<std::int64_t> left_in_groups(const GroupFiles& version, const SystemText& text) {
    std::optional<std::int64_t> left;
    for (const std::string& folder : group_folders(version.version, "memory", text))
        if (const auto here = left_in(version, folder, text)) left = std::min(*here, left.value_or(*here));
    return left;
}

} // namespace

std::optional<Bytes> left_memory(const SystemText& text) {
    std::optional<std::int64_t> left = number_after("MemAvailable:", text("/proc/meminfo").value_or(""));
    if (left) *left *= 1024;
    for (const GroupFiles* version : {&version_1, &version_2})
        if (const auto in_groups = left_in_groups(*version, text))
            left = std::min(*in_groups, left.value_or(*in_groups));
    return left ? std::optional(Bytes{*left}) : std::nullopt;
}

} // namespace tutti

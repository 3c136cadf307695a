#include "base/free_memory.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

// The number after a word at the start of a line; 2^63 - 1 where it is larger. Nothing for "max".
std::optional<std::int64_t> number_after(std::string_view word, std::string_view text) {
    for (std::string_view line : lines_of(text)) {
        if (!line.starts_with(word)) continue;
        line.remove_prefix(std::min(line.find_first_not_of(" \t", word.size()), line.size()));
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
        if (error == std::errc::result_out_of_range) return std::numeric_limits<std::int64_t>::max();
        if (error == std::errc()) return number;
    }
    return std::nullopt;
}

struct GroupFiles { // of a version of control groups
    const char *root, *limit, *used, *inactive, *active;
};
constexpr GroupFiles version_1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file ", "total_active_file "};
constexpr GroupFiles version_2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file ", "active_file "};

// The process's place among groups, as "/jobs/7", from lines such as "4:cpu,memory:/jobs/7" or, in version 2, "0::/".
std::optional<std::string> place_of(const GroupFiles& version, const SystemText& text) {
    const std::string groups = text("/proc/self/cgroup").value_or("");
    for (const std::string_view line : lines_of(groups)) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string_view::npos || second == std::string_view::npos) continue;
        const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
        if (&version == &version_2 ? controllers == ",," : controllers.find(",memory,") != std::string::npos)
            return std::string(line.substr(second + 1));
    }
    return std::nullopt;
}

std::optional<std::int64_t> left_in(const GroupFiles& version, const std::string& folder, const SystemText& text) {
    auto number = [&](const char* file) { return number_after("", text(folder + file).value_or("")); };
    const auto limit = number(version.limit), used = number(version.used);
    if (!limit || !used) return std::nullopt;
    const std::string details = text(folder + "/memory.stat").value_or("");
    const std::int64_t files =
        number_after(version.inactive, details).value_or(0) + number_after(version.active, details).value_or(0);
    return std::max<std::int64_t>(*limit - std::max<std::int64_t>(*used - files, 0), 0);
}

// Of the process's group and all above it. In a container the file system may begin at a group below the root.
std::optional<std::int64_t> left_in_groups(const GroupFiles& version, const SystemText& text) {
    std::optional<std::int64_t> left;
    std::optional<std::string> place = place_of(version, text);
    while (place) {
        if (*place == "/") place = "";
        if (const auto here = left_in(version, version.root + *place, text))
            left = std::min(*here, left.value_or(*here));
        if (place->empty()) break;
        place = place->substr(0, place->rfind('/') == std::string::npos ? 0 : place->rfind('/'));
    }
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

#include "base/control_groups.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>

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

// The process's place among groups, as "/jobs/7", from lines such as "4:cpu,memory:/jobs/7" or, in version 2, "0::/".
std::optional<std::string> place_of(GroupVersion version, const std::string& controller, const SystemText& text) {
    const std::string groups = text("/proc/self/cgroup").value_or("");
    for (const std::string_view line : lines_of(groups)) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string_view::npos || second == std::string_view::npos) continue;
        const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
        if (version == GroupVersion::two ? controllers == ",,"
                                         : controllers.find("," + controller + ",") != std::string::npos)
            return std::string(line.substr(second + 1));
    }
    return std::nullopt;
}

} // namespace

std::optional<std::string> system_text(const std::string& path) { // such files have no size
    std::FILE* file = std::fopen(path.c_str(), "r");
    if (file == nullptr) return std::nullopt;
    std::string text;
    char part[4096];
    for (std::size_t count = 0; (count = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, count);
    std::fclose(file);
    return text;
}

std::vector<std::string> group_folders(GroupVersion version, const std::string& controller, const SystemText& text) {
    const std::string root = version == GroupVersion::two ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    std::vector<std::string> folders;
    std::optional<std::string> place = place_of(version, controller, text);
    while (place) {
        if (*place == "/") place = "";
        folders.push_back(root + *place);
        if (place->empty()) break;
        place = place->substr(0, place->rfind('/') == std::string::npos ? 0 : place->rfind('/'));
    }
    return folders;
}

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

} // namespace tutti

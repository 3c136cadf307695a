// Control groups, by which containers and batch systems limit what a process takes: where their files are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The text of a file of the system; nothing where there is none.
using SystemText = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> system_text(const std::string& path); // of this machine

// The folders of this process's group and of all above it, which limit it, too. In version 1 every controller
// ("memory", "cpu") has groups of its own; in version 2 all share them. In a container the file system may begin at a
// group below the root: folders need not be there.
enum class GroupVersion { one, two };
std::vector<std::string> group_folders(GroupVersion version, const std::string& controller, const SystemText& text);

// The number after a word at the start of a line; 2^63 - 1 where it is larger. Nothing for "max".
std::optional<std::int64_t> number_after(std::string_view word, std::string_view text);

} // namespace tutti

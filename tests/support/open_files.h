// Files of this process that have no name any more.
#pragma once

#include "base/file.h"

#include <map>
#include <string>
#include <vector>

namespace tutti::test {

// As paths that can be opened, of those that were made in this folder.
inline std::vector<fs::path> nameless_files_of(const fs::path& folder) {
    std::map<std::string, fs::path> found; // a file may be open more than once
    const std::string beginning = fs::canonical(folder).string() + "/";
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
        std::error_code closed;
        const std::string target = fs::read_symlink(entry.path(), closed).string();
        if (target.starts_with(beginning) && target.ends_with(" (deleted)")) found.emplace(target, entry.path());
    }
    std::vector<fs::path> paths;
    for (const auto& [target, path] : found) paths.push_back(path);
    return paths;
}

} // namespace tutti::test

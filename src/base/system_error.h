// What a failed system call means. This is the one place that says whose an errno is: the world's, so that trying again
// or resuming may work (a full disk, a lost file server, no descriptors left), or the user's (a wrong path, no
// permission).
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace tutti {

bool is_of_the_world(int error);
// Throws WorldError or Error: `what`, a colon and the system's words for the error.
[[noreturn]] void throw_system_error(int error, const std::string& what);

// fail_system(errno, "cannot read {}", path): reads errno first, before anything else can change it.
template <class... Args>
[[noreturn]] void fail_system(int error, fmt::format_string<Args...> what, Args&&... args) {
    throw_system_error(error, fmt::format(what, std::forward<Args>(args)...));
}

} // namespace tutti

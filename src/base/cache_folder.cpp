#include "base/cache_folder.h"

#include <cstdlib>

namespace tutti {
namespace {

std::optional<fs::path> from_environment(const char* name) {
    const char* value = std::getenv(name);
    if (!value || !*value) return std::nullopt;
    return fs::path(value);
}

} // namespace

std::optional<fs::path> cache_folder() {
    if (auto own = from_environment("TUTTI_CACHE")) return own;
    if (auto shared = from_environment("XDG_CACHE_HOME"); shared && shared->is_absolute()) return *shared / "tutti";
    if (auto home = from_environment("HOME")) return *home / ".cache" / "tutti";
    return std::nullopt;
}

} // namespace tutti

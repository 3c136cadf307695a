// Where this program keeps what it has measured, from run to run.
#pragma once

#include "base/file.h"

#include <optional>

namespace tutti {

// $TUTTI_CACHE, $XDG_CACHE_HOME/tutti or $HOME/.cache/tutti, the first that is set.
std::optional<fs::path> cache_folder();

} // namespace tutti

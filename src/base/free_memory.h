// How much memory a process may still take before the system kills one: from the files in which the kernel tells.
#pragma once

#include "base/control_groups.h"
#include "base/units.h"

#include <optional>

namespace tutti {

// What is available on the machine, and what is left of the limits of this process's control group (version 1 or 2) and
// of those above it, as containers and batch systems set them. File pages count as free: the kernel takes them back.
// Nothing where none of the files tells.
std::optional<Bytes> left_memory(const SystemText& text);

} // namespace tutti

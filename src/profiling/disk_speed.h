// How fast a disk reads and writes model data.
#pragma once

#include "base/file.h"
#include "base/speed.h"
#include "base/units.h"

namespace tutti::profiling {

// By a file in this folder, of no more than `most`. WorldError as SpillFile has it.
CopySpeed measure_disk(const fs::path& folder, Bytes most);

} // namespace tutti::profiling

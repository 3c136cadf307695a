// How fast a disk reads and writes model data, both at once.
#pragma once

#include "base/file.h"
#include "base/units.h"

namespace tutti {

struct DiskSpeed {
    double read = 1e9, written = 1e9; // bytes per second
};

// By a file in this folder, of no more than `most`. WorldError as SpillFile has it.
DiskSpeed measure_disk(const fs::path& folder, Bytes most);

} // namespace tutti

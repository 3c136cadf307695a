// How fast a disk reads and writes model data.
#pragma once

#include "base/file.h"
#include "base/units.h"

namespace tutti {

struct DiskSpeed {
    double read = 1e9, written = 1e9; // bytes per second, each alone
    double together = 1;              // what both at once get done of that: 1, as one after the other, to 2
};

// By a file in this folder, of no more than `most`. WorldError as SpillFile has it.
DiskSpeed measure_disk(const fs::path& folder, Bytes most);

} // namespace tutti

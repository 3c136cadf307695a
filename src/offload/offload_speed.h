// How fast a machine does what offloading weighs: copies between host and device, the kernels of a program, updates
// that the host does, and a disk. Timed by profiling/offload_timing.h, or given as a table.
#pragma once

#include "base/speed.h"
#include "costs/kernel_times.h"
#include "offload/moments.h"

#include <optional>

namespace tutti::offload {

// What OffloadTiming would time, given instead: decisions then follow from this table and not from the machine.
struct SpeedTable {
    KernelSpeed kernels{};
    CopySpeed host{};
    CopySpeed disk{};      // of any folder
    double updates = 1e10; // by the host: bytes of operands per second
};

struct OffloadSpeed {
    InstructionSeconds seconds{}; // on its lane: the device's, or the host's
    CopySpeed host{};             // between host memory and device
    std::optional<CopySpeed> disk{};
    double updates = 0; // by the host: bytes of operands per second
};

} // namespace tutti::offload

// The speeds that offloading decisions depend on: copies between host and device, a program's kernels, updates by the
// host, and a disk. Timed by profiling/offload_timing.h, or given as a table.
#pragma once

#include "base/speed.h"
#include "costs/kernel_times.h"
#include "offload/time_points.h"

#include <optional>

namespace tutti::offload {

// Speeds that are given instead of timed. Decisions then follow from this table and not from the machine.
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

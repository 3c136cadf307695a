// How fast a device is, timed on a matrix product, a copy and a tiny kernel: some tens of milliseconds. Operands take
// no more than `room`, so that a process needs no more than its run will.
#pragma once

#include "backend/device.h"
#include "base/speed.h"

namespace tutti::profiling {

KernelSpeed measure_kernels(const backend::Device& device, DType dtype, Bytes room = {std::int64_t{1} << 30});

} // namespace tutti::profiling

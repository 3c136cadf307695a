// How fast a device is, timed on a matrix product, a copy and a tiny kernel: some tens of milliseconds.
#pragma once

#include "backend/device.h"
#include "base/speed.h"

namespace tutti {

KernelSpeed measure_kernels(const Device& device, DType dtype);

} // namespace tutti

// The CPU backend: matrix products by oneDNN, everything else by the loops of simd/. OpenMP is the one thread pool.
#pragma once

#include "backend/device.h"

#include <memory>

namespace tutti::backend::cpu {

// 0 threads: as many as this process may use. The same number of threads gives the same bits.
std::unique_ptr<Device> make_cpu_device(int threads);

} // namespace tutti::backend::cpu

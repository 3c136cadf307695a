// Attention by cuDNN or by own kernels: which, and why.
#pragma once

#include "backend/device.h"

#include <string>

namespace tutti::backend::cuda {

// How a kernel for attention or its gradient runs: "cuDNN 91900 engine 2 with kernel 7", "own kernels: there is a
// mask".
std::string how_attention_runs(const Kernel& kernel);

} // namespace tutti::backend::cuda

// step.cu registers the kernels of both files.
#pragma once

#include "backend/cuda/cuda.h"

namespace tutti::backend::cuda {

void add_adamw_kernel(KernelTable&); // adamw.cu

} // namespace tutti::backend::cuda

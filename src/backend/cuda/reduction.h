// reduction.cu registers the kernels of both files.
#pragma once

#include "backend/cuda/cuda.h"

namespace tutti::backend::cuda {

void add_row_kernels(KernelTable&); // softmax.cu: softmax, its gradient, cumsum

} // namespace tutti::backend::cuda

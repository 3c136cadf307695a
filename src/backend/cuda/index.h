// What the look-ups share: ids of either width.
#pragma once

#include "backend/cuda/kernels.h"

namespace tutti::backend::cuda {

struct Ids {
    const std::byte* data;
    bool wide; // int64, else int32

    __device__ std::int64_t at(std::int64_t i) const {
        return wide ? reinterpret_cast<const std::int64_t*>(data)[i] : reinterpret_cast<const std::int32_t*>(data)[i];
    }
};

// index.cu registers its own and this one.
void add_embedding_gradient_kernel(KernelTable&); // embedding_gradient.cu

} // namespace tutti::backend::cuda

// Cross-entropy by rows, as the fused output head uses it.
#pragma once

#include "backend/cuda/cuda.h"

namespace tutti::backend::cuda {

// Rows of `classes` logits that begin `stride` elements apart, and where their targets are. All in device memory.
struct LossRows {
    std::byte* logits = nullptr;
    DType dtype = DType::float32; // or bf16
    const std::int64_t* targets = nullptr;
    std::int64_t rows = 0, classes = 0, stride = 0, ignore_index = -100;
};

// The gradient of the loss, a scalar in device memory.
struct LossSeed {
    const std::byte* value = nullptr;
    DType dtype = DType::float32; // or bf16
};

// losses[i] = row i's loss, 0 where it is ignored; the logits become dloss (softmax - onehot(target)) in place, zero in
// ignored rows and in the columns between `classes` and `stride`. A row is read once, but for what of it a block's
// shared memory cannot hold.
void launch_loss_and_gradient(const LossRows& rows, const LossSeed& seed, float* losses, const Gpu& gpu,
                              cudaStream_t stream);

// loss = sum of losses, or plus it; in double, in a fixed order.
void launch_loss_sum(const float* losses, std::int64_t count, float* loss, bool add, cudaStream_t stream);

} // namespace tutti::backend::cuda

// Cross-entropy by rows, as cross_entropy and the fused output head use it.
#pragma once

#include "backend/cuda/kernels.h"

namespace tutti::cuda {

// Rows of `classes` logits that begin `stride` elements apart, and where their targets are.
template <class T>
struct LossRows {
    T* logits;
    const std::int64_t* targets;
    std::int64_t rows, classes, stride, ignore_index;
};

// The gradient of the loss, a scalar in device memory.
struct LossSeed {
    const void* value;
    bool narrow; // bf16; else float32

    __device__ float get() const {
        return narrow ? to_float(*static_cast<const bf16*>(value)) : *static_cast<const float*>(value);
    }
};

// losses[i] = row i's loss, 0 where it is ignored; the logits become dloss (softmax - onehot(target)) in place, zero in
// ignored rows and in the columns between `classes` and `stride`. A row is read once, but for what of
// it a block's shared memory cannot hold. T is float or bf16.
template <class T>
void launch_loss_and_gradient(const LossRows<T>& rows, const LossSeed& seed, float* losses, const Gpu& gpu,
                              cudaStream_t stream);

// loss = sum of losses, or plus it; in double, in a fixed order.
void launch_loss_sum(const float* losses, std::int64_t count, float* loss, bool add, cudaStream_t stream);

} // namespace tutti::cuda

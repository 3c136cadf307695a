// Launching the tiled kernels of attention: the space that they need, and the order of their blocks.
#pragma once

#include "backend/cuda/attention_rows.h"
#include "backend/cuda/attention_variants.h"

#include <cstddef>

namespace tutti::backend::cuda {

struct ForwardData {
    const bf16 *q = nullptr, *k = nullptr, *v = nullptr;
    bf16* out = nullptr;
    float* lse = nullptr; // [b, h, t]
};

// What it is compiled with that the call needs.
AttentionExtras extras_of(const AttentionCall& call);

// Once, before they are launched.
cudaError_t allow_shared_memory(const ForwardVariant& variant);
cudaError_t allow_shared_memory(const BackwardVariant& variant);

void launch_forward(const ForwardVariant& variant, AttentionCall call, const ForwardData& data, std::int64_t l2_bytes,
                    cudaStream_t stream);

// Where things lie in the workspace of the gradient, in bytes.
struct GradientSpace {
    std::int64_t scaled_lse = 0, row_sums = 0, turns = 0, next = 0, partial_dq = 0, end = 0;

    GradientSpace(const BackwardVariant& variant, const AttentionCall& call);
};

// `rows` and `data` say where the operands and results are; the rest of them is filled in here.
void launch_backward(const BackwardVariant& variant, AttentionCall call, RowTask& rows, BackwardData data,
                     std::byte* workspace, std::int64_t l2_bytes, int multiprocessors, cudaStream_t stream);

} // namespace tutti::backend::cuda

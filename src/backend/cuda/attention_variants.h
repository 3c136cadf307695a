// The tiled kernels of attention that are compiled: for each class of head sizes one or more shapes of tiles.
#pragma once

#include "backend/cuda/attention_call.h"

#include <cuda_bf16.h>

#include <array>
#include <vector>

namespace tutti::backend::cuda {

using bf16 = __nv_bfloat16;

// What the kernels are compiled with. Windows, documents, sinks and causal masks cost nothing where they rule nothing
// out, and are in all of them.
enum class AttentionExtras {
    none,
    dropout,
    all // soft caps, masks and biases, with dropout or without
};
constexpr int attention_extras = 3;

struct AttentionTileSizes {
    int head = 0; // sizes up to this one
    int queries = 0, keys = 0, threads = 0, shared_bytes = 0;
};

using ForwardKernel = void (*)(AttentionCall, const bf16* q, const bf16* k, const bf16* v, bf16* out, float* lse);
struct ForwardVariant : AttentionTileSizes {
    std::array<ForwardKernel, attention_extras> kernels = {};
};

struct BackwardData {
    const bf16 *dout = nullptr, *q = nullptr, *k = nullptr, *v = nullptr;
    // [b h, blocks of queries, queries of a block]: log2_e times the log-sum-exps, +inf where a row counts for nothing;
    // and sums of dout out.
    const float *lse = nullptr, *row_sums = nullptr;
    bf16 *dq = nullptr, *dk = nullptr, *dv = nullptr;
    HeadStrides dout_strides = {}, dq_strides = {}, dk_strides = {}, dv_strides = {};
    bool pairs = false;          // of gradients
    bool backwards = false;      // see attention_backward.h
    float* partial_dq = nullptr; // of every block of queries
    int* turns = nullptr;        // of every block of queries and warp
    int* next = nullptr;         // number of the next block to start
};
using BackwardKernel = void (*)(AttentionCall, BackwardData);
struct BackwardVariant : AttentionTileSizes {
    int warps = 0;
    // One kernel for all gradients, or one for dv and one for dq and dk where the sums are too large for registers.
    std::array<BackwardKernel, attention_extras> kernels = {}, first_kernels = {};
};

// By files, which the compiler works on side by side. Of one class of heads, the first is the best on large GPUs.
std::vector<ForwardVariant> narrow_forward_variants();   // heads up to 96
std::vector<ForwardVariant> wide_forward_variants();     // up to 256
std::vector<BackwardVariant> narrow_backward_variants(); // up to 96
std::vector<BackwardVariant> middle_backward_variants(); // up to 128
std::vector<BackwardVariant> wide_backward_variants();   // up to 256

} // namespace tutti::backend::cuda

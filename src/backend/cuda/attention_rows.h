// What the tiled kernels of attention need to know of rows beforehand, and the gradient of sinks, which follows from
// rows alone.
#pragma once

#include "backend/cuda/attention_variants.h"

namespace tutti::backend::cuda {

// The first positions of the documents of queries [b, t] and keys [b, s]: which keys are of each query's document.
struct DocumentTask {
    const std::int32_t *of_queries = nullptr, *of_keys = nullptr;
    std::int64_t batch = 0, query_strides[2] = {}, key_strides[2] = {};
    int queries = 0, keys = 0;
};
void launch_documents(const DocumentTask& task, int2* ranges, cudaStream_t stream);

// For every block of queries of the gradient's tiles: its log-sum-exps and its sums of dout out; zeros in dq where
// nothing will be added; all turns back to the first.
struct RowTask {
    const bf16 *dout = nullptr, *out = nullptr;
    const float* lse = nullptr;
    HeadStrides dout_strides = {}, out_strides = {};
    std::int64_t lse_strides[3] = {};
    bool packs = false; // of dout and out
    float *scaled_lse = nullptr, *row_sums = nullptr;
    int query_block = 0, key_block = 0, warps = 0; // of the gradient's tiles
    std::int64_t rows_of_head = 0;                 // whole blocks of them
};
void launch_rows(const AttentionCall& call, const RowTask& rows, const BackwardData& data, cudaStream_t stream);

// dsink_h = - sum over samples and queries of exp(sink_h - lse) dout out
struct SinkGradientTask {
    const float *lse = nullptr, *row_sums = nullptr; // the products dout out
    std::int64_t lse_strides[3] = {};
    std::int64_t rows_of_head = 0; // from the sums of one head to those of the next
    float* gradient = nullptr;     // [h]
};
void launch_sink_gradient(const AttentionCall& call, const SinkGradientTask& task, cudaStream_t stream);

} // namespace tutti::backend::cuda

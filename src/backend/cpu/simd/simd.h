// The inner loops of the CPU backend. The files of this folder are compiled once per instruction set (see
// CMakeLists.txt), each into a namespace of its own; simd() is the best set that this CPU runs. They take pointers and
// integers and run on one thread: how work is split among threads is the kernels' business.
#pragma once

#include "base/dtype.h"
#include "base/philox.h"

#include <cstddef>
#include <cstdint>

namespace tutti::backend::cpu {

// ---- Elements

enum class ElementOp {
    // Of x
    negate,
    exp,
    log,
    sqrt,
    rsqrt,
    tanh,
    sigmoid,
    erf,
    sin,
    cos,
    gelu,
    gelu_tanh,
    silu,
    relu,
    // Of dy and x
    gelu_gradient,
    gelu_tanh_gradient,
    silu_gradient,
    relu_gradient,
    // Of a and b
    add,
    subtract,
    multiply,
    divide,
    maximum,
    minimum,
    // Of a and b, to bool
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    // Of two bools
    logical_and,
    logical_or,
    // Of gate and up
    gated_gelu,
    gated_gelu_tanh,
    gated_silu,
    gated_relu,
};

// Over `count` elements without gaps; the output may be the first input.
using ElementFunction = void (*)(const std::byte* const* inputs, std::byte* output, std::int64_t count);
// From dy, gate and up.
using GatedGradientFunction = void (*)(const std::byte* const* inputs, std::byte* gate_gradient, std::byte* up_gradient,
                                       std::int64_t count);

// ---- Rows. T is the type of the data; statistics and sums are float.

struct DropoutRow {
    PhiloxKey key;
    std::uint64_t stream = 0;
    std::uint32_t threshold = 0; // of 2^24: a draw below it falls
    float scale = 1;             // of what stays
};

template <class T>
struct RowFunctions {
    void (*widen)(const T* from, float* to, std::int64_t count);
    void (*narrow)(const float* from, T* to, std::int64_t count);

    void (*layer_norm)(const T* x, const T* scale, const T* shift, T* y, std::int64_t width, float eps, float* mean,
                       float* rstd);
    // The input gradients add a residual where there is one.
    void (*layer_norm_input_gradient)(const T* dy, const T* x, const T* scale, const T* residual, T* dx,
                                      std::int64_t width, float mean, float rstd);
    void (*rms_norm)(const T* x, const T* scale, T* y, std::int64_t width, float eps, float offset, float* rstd);
    void (*rms_norm_input_gradient)(const T* dy, const T* x, const T* scale, const T* residual, T* dx,
                                    std::int64_t width, float rstd, float offset);
    // One row's share of sums over rows.
    void (*add_row)(const T* x, float* sum, std::int64_t width);
    void (*add_layer_norm_row)(const T* dy, const T* x, float mean, float rstd, float* dscale, float* dshift,
                               std::int64_t width);
    void (*add_rms_norm_row)(const T* dy, const T* x, float rstd, float* dscale, std::int64_t width);

    void (*softmax)(const T* x, T* y, std::int64_t width);
    void (*softmax_gradient)(const T* dy, const T* y, T* dx, std::int64_t width);
    float (*log_sum_exp)(const T* x, std::int64_t width);
    // scale * (e^(x - lse) - [i = target]), the target -1 where it is none of these; may be in place
    void (*cross_entropy_gradient)(const T* x, T* dx, std::int64_t width, std::int64_t target, float lse, float scale);
    // The first 2 `pairs` elements rotated, the rest of `width` copied.
    void (*rotary)(const T* x, const float* cos, const float* sin, T* y, std::int64_t pairs, std::int64_t width,
                   float sign);
    double (*squared_sum)(const T* x, std::int64_t count);
    // Draws elements [first, first + count) of the stream.
    void (*dropout)(const T* x, T* y, std::int64_t count, std::uint64_t first, const DropoutRow& how);
};

// ---- Optimizer

struct AdamwStep {
    float gradient_scale; // clip factor / loss scale
    float decay;          // 1 - learning rate * weight decay; 1 where not decayed
    float beta1, beta2;
    float rest1, rest2; // 1 - beta
    float step_size;    // learning rate / (1 - beta1^t)
    float inverse_root; // 1 / sqrt(1 - beta2^t)
    float epsilon;
};
// The random numbers that narrow elements are rounded with: `first` is the number of the first element in its stream, a
// multiple of update_group.
struct AdamwDraws {
    PhiloxKey key;
    std::uint64_t stream = 0;
    std::int64_t first = 0;
};
// Without draws, narrow elements are rounded to nearest.
using AdamwFunction = void (*)(const void* gradients, void* weights, void* moments1, void* moments2, float* master,
                               std::int64_t begin, std::int64_t end, const AdamwStep& step, const AdamwDraws* draws);

// ---- Attention, on one block of queries: see attention.cpp

// Numbers added to the scores of a sample and query head, or their sums; strides are in elements, 0 where broadcast.
template <class T>
struct ScoreNumbers {
    T* data = nullptr; // of the first query of all and the first key; null: there are none
    std::int64_t query_stride = 0, key_stride = 0;
    bool narrow = false; // bf16, else float
};

struct AttentionTask {
    // Pointers to this sample, and to this query head where there is one. Strides are in elements, of a position.
    const void *q, *k, *v, *out_gradient, *out_saved;
    void *out, *q_gradient;
    ScoreNumbers<const void> mask, bias;
    float* lse;
    std::int64_t q_stride, k_stride, v_stride, out_gradient_stride, out_saved_stride, out_stride, q_gradient_stride;
    std::int64_t first_query, queries;   // of this block; at most attention_block
    std::int64_t keys, head, value_head; // sizes
    // What the queries see: keys [begin, end) hold all of it; query i of the block is at the position of key place + i,
    // and sees those up to it (causal), of a window only the last, and only those of its own document.
    std::int64_t begin, end, place, window; // window: 0 where there is none
    bool causal;
    const std::int32_t *query_documents, *key_documents; // of the block's first query and of the first key, or null
    float scale, soft_cap;                               // soft_cap: 0 where there is none
    bool has_sink;
    float sink;
    bool dropout;
    DropoutRow drop;
    std::uint64_t first_element;       // of the block's first query and the first key, in the stream
    std::int64_t whole_keys;           // from one query's elements to the next one's
    float *k_gradient, *v_gradient;    // [keys, head] and [keys, value_head]: added to
    ScoreNumbers<float> bias_gradient; // added to
    float* tiles;                      // attention_tile_floats() of them
};
constexpr std::int64_t attention_block = 64; // queries and keys

constexpr std::int64_t attention_tile_floats(std::int64_t head, std::int64_t value_head) {
    return attention_block * (4 * (head + value_head) + 4 * attention_block + 8);
}

struct AttentionFunctions {
    void (*forward)(const AttentionTask&);
    void (*backward)(const AttentionTask&);      // of queries, keys and values
    void (*bias_backward)(const AttentionTask&); // of the bias
};

struct Simd {
    const char* name;
    ElementFunction (*element)(ElementOp op, DType dtype); // null where there is none
    ElementFunction (*accumulate)(DType from, DType to);   // out = in0 + in1, in0 of `to`, in1 of `from`
    GatedGradientFunction (*gated_gradient)(ElementOp gated, DType dtype);
    AdamwFunction (*adamw)(DType gradients, DType weights, DType moments);
    RowFunctions<float> float_rows;
    RowFunctions<BFloat16> bfloat16_rows;
    AttentionFunctions float_attention;
    AttentionFunctions bfloat16_attention;

    template <class T>
    const RowFunctions<T>& rows() const {
        if constexpr (sizeof(T) == sizeof(float))
            return float_rows;
        else
            return bfloat16_rows;
    }
};

const Simd& simd();

// Functions and not constants: building a table is already code of that instruction set.
namespace baseline {
const Simd& table();
}
namespace avx2 {
const Simd& table();
}
namespace avx512 {
const Simd& table();
}

} // namespace tutti::backend::cpu

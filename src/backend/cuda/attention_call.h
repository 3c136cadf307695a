// AttentionCall: what the kernels of attention and of its gradient are told, as plain values. How they take it on the
// device is in attention_view.h.
#pragma once

#include "backend/random_stream.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tutti::backend::cuda {

// From one sample, position and head of a tensor [b, t, h, d] to the next, in elements.
struct HeadStrides {
    std::int64_t sample = 0, row = 0, head = 0;

    __host__ __device__ std::int64_t at(std::int64_t b, std::int64_t t, std::int64_t h) const {
        return b * sample + t * row + h * head;
    }
};

// Added to the scores: a mask or a bias that broadcasts to [b, h, t, s].
struct Addend {
    const void* data = nullptr;
    bool narrow = false;          // bf16
    std::int64_t strides[4] = {}; // 0 where it is broadcast

    // What is added for a query and a key of the head that begins there.
    __device__ float at(std::int64_t head_at, std::int64_t i, std::int64_t j) const;
    __device__ std::int64_t head_at(std::int64_t b, std::int64_t h) const { return b * strides[0] + h * strides[1]; }
};

// Dropout of probabilities. Element (head, i, j) of a sample's stream is number (head queries + i) keys + j, where all
// are counted in the whole sequence and model.
struct AttentionDropout {
    bool on = false;
    std::uint32_t threshold = 0; // a draw below it falls
    float kept_scale = 1;
    std::int64_t first_sample = 0, first_head = 0, first_query = 0, first_key = 0;
    std::int64_t whole_queries = 0, whole_keys = 0;
    std::uint64_t source = 0;
    const StepScalars* scalars = nullptr;

    __device__ std::uint64_t element(std::int64_t h, std::int64_t i, std::int64_t j) const {
        return static_cast<std::uint64_t>(((first_head + h) * whole_queries + first_query + i) * whole_keys +
                                          first_key + j);
    }
    __device__ std::uint64_t stream(std::int64_t b) const {
        return mix_bits(source, static_cast<std::uint64_t>(scalars->first_sample + first_sample + b));
    }
};

// Keys, or blocks of keys: [begin, end).
struct KeyRange {
    int begin = 0, end = 0;
};

struct AttentionCall {
    std::int64_t batch = 0;
    int queries = 0, keys = 0, heads = 0, key_heads = 0;
    int head = 0, value_head = 0; // sizes
    float scale = 1;

    // What a query sees. A query's position less that of the first key: `offset` and its place.
    bool causal = false;
    int window = 0; // 0: none
    int offset = 0;
    const int2* documents = nullptr; // [b, t]: the keys of each query's document

    float soft_cap = 0; // 0: none
    Addend mask, bias;
    const void* sinks = nullptr; // [h]
    bool sinks_are_narrow = false;
    AttentionDropout dropout;

    int heads_at_once = 1; // see BlockOrder
    bool packs = false;    // rows of q, k, v (and dout) can be read sixteen bytes at a time
    bool pairs = false;    // rows of results can be written four bytes at a time
    HeadStrides q, k, v, out;

    // The key head that serves a head.
    __host__ __device__ int key_head_of(int h) const { return h / (heads / key_heads); }
    __host__ __device__ int group() const { return heads / key_heads; }
    __host__ __device__ int all_heads() const { return static_cast<int>(batch) * heads; }

    // The keys that a query sees: always neighbours, and none before those of the queries before it.
    __device__ KeyRange seen_by(std::int64_t b, int i) const;
    __device__ float sink(int h) const;
};

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

} // namespace tutti::backend::cuda

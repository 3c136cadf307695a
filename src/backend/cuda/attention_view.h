// Which keys queries see, on the device, and the order in which blocks take their work.
#pragma once

#include "backend/cuda/attention_call.h"

namespace tutti::backend::cuda {

// The upper half of a float is a bf16.
__device__ inline float number_at(const void* data, bool narrow, std::int64_t place) {
    return narrow ? __uint_as_float(std::uint32_t{static_cast<const std::uint16_t*>(data)[place]} << 16)
                  : static_cast<const float*>(data)[place];
}

__device__ inline float Addend::at(std::int64_t head_at, std::int64_t i, std::int64_t j) const {
    return number_at(data, narrow, head_at + i * strides[2] + j * strides[3]);
}

__device__ inline float AttentionCall::sink(int h) const { return number_at(sinks, sinks_are_narrow, h); }

__device__ inline KeyRange AttentionCall::seen_by(std::int64_t b, int i) const {
    const int position = i + offset;
    KeyRange seen{0, keys};
    if (causal) seen.end = min(seen.end, position + 1);
    if (window > 0) {
        seen.begin = max(seen.begin, position - window + 1);
        if (!causal) seen.end = min(seen.end, position + window);
    }
    if (documents != nullptr) {
        const int2 document = documents[b * queries + i];
        seen.begin = max(seen.begin, document.x), seen.end = min(seen.end, document.y);
    }
    return {min(seen.begin, keys), max(seen.end, 0)};
}

// The keys that a block of queries sees: any of them, and all of them.
struct BlockView {
    KeyRange any, all;

    __device__ BlockView(const AttentionCall& call, std::int64_t b, int first, int count) {
        const KeyRange earliest = call.seen_by(b, first);
        const KeyRange latest = call.seen_by(b, min(first + count, call.queries) - 1);
        any = {earliest.begin, latest.end};
        all = {latest.begin, earliest.end};
    }
    // Blocks of `size` keys.
    __device__ KeyRange blocks(int size) const {
        return any.begin < any.end ? KeyRange{any.begin / size, (any.end + size - 1) / size} : KeyRange{};
    }
    __device__ bool whole(int first_key, int size) const {
        return first_key >= all.begin && first_key + size <= all.end;
    }
};

// Work in order: the first blocks of a few heads, then their second ones, and so on, so that what heads have in common
// stays in the cache and the last to start are the shortest.
struct BlockOrder {
    int block, head;

    __device__ BlockOrder(int number, int blocks, int heads, int heads_at_once) {
        const int chunk = number / (heads_at_once * blocks), rest = number - chunk * heads_at_once * blocks;
        const int width = min(heads_at_once, heads - chunk * heads_at_once);
        block = rest / width;
        head = chunk * heads_at_once + rest % width;
    }
};

} // namespace tutti::backend::cuda

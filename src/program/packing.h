// Packing: a tensor's parts along one dimension, rank after rank, as collectives take them.
#pragma once

#include "base/parts.h"
#include "base/tensor_type.h"
#include "graph/attributes.h"
#include "graph/traits.h"

#include <cstddef>
#include <string_view>

namespace tutti {

struct Packing {
    Parts parts;
    std::int64_t outer = 1, size = 1; // dimensions before; indices of the dimension itself
    std::int64_t inner = 1;           // bytes of what follows it

    // Of a whole tensor, by the attributes that name the dimension and its parts.
    Packing(const TensorType& whole, const Attributes& attributes, std::string_view dim, std::string_view parts);

    bool in_place() const { return outer == 1 && in_rank_order(parts); } // the tensor lies so already
    std::vector<std::int64_t> counts() const;                            // bytes per rank
    std::int64_t bytes() const { return outer * size * inner; }

    // Blocks that lie equally far apart in the tensor and in its packed form: where the first begins, in bytes.
    struct Blocks {
        std::int64_t tensor = 0, tensor_stride = 0, packed = 0, packed_stride = 0;
        std::int64_t bytes = 0, count = 0; // of each; how many
    };
    std::vector<Blocks> blocks() const;

    void pack(const std::byte* tensor, std::byte* packed) const;
    void unpack(const std::byte* packed, std::byte* tensor) const;
};

// What a collective needs beside its operands: 0 where parts need not be packed.
Bytes packing_bytes(AxisCollective what, const Attributes& attributes, const TensorType& input,
                    const TensorType& output);

} // namespace tutti

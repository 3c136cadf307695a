// Holding: which part of a model's data a rank has. Of every stored tensor of its stages a slice, where operators are
// split; of every chunk of these, per region, a range of elements, where ZeRO spreads it. Files hold whole tensors, so
// it also says what of it this rank saves: over all ranks, every element once.
#pragma once

#include "graph/graph.h"
#include "program/program.h"
#include "sharding/slice.h"

#include <array>
#include <span>
#include <string>
#include <vector>

namespace tutti::memory {

constexpr std::size_t chunk_region_count = 5;

struct HeldTensor {
    std::string name;            // of the whole tensor
    sharding::TensorSlice slice; // what is held of it: the stored tensor of the rank's graph
    // Per chunk region: whether this rank saves it. Of ranks that hold the same elements one does: the first replica,
    // of a tied tensor the first stage that has it, of one that the tensor axis does not split the first rank there.
    std::array<bool, chunk_region_count> saved = {true, true, true, true, true};
};

struct Holding {
    // Per chunk, in elements of the chunk; none: all of every chunk.
    using ChunkRanges = std::vector<Range>;

    std::vector<HeldTensor> tensors;                    // per stored tensor of the chunk layout
    std::array<ChunkRanges, chunk_region_count> held{}; // memory holds nothing else
    // What of the held range is this rank's to save, beside the tensors' own word. With ZeRO 1 and 2 weights are whole
    // on every rank, but after a step only the part that it updated is new.
    std::array<ChunkRanges, chunk_region_count> saved{};
};

// One rank that has everything.
Holding whole_model(std::span<const StoredTensor> stored);

// The range of one chunk of `elements`.
Range range_of(const Holding::ChunkRanges& ranges, std::size_t chunk, std::int64_t elements);

} // namespace tutti::memory

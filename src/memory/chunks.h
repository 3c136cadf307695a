// Chunks: all model data lives in them, always. A layout says where each stored tensor lies; weights, gradients, master
// weights and moments are lists of chunks that all follow the same layout.
#pragma once

#include "graph/graph.h"

#include <vector>

namespace tutti {

struct ChunkEntry {
    std::int32_t stored = -1; // stored tensor
    std::int64_t first = 0;   // the slice of it that lies here, in elements
    std::int64_t count = 0;
    std::int64_t offset = 0; // in the chunk, in elements
    bool decays = false;     // weight decay applies
    bool trained = false;    // some contribution reaches it; else the optimizer leaves it alone
    bool counted_in_norm = true;
    std::int32_t tie_group = -1; // tensors with several uses; -1: one use
};

struct Chunk {
    std::int64_t elements = 0; // a multiple of the alignment
    std::vector<ChunkEntry> entries;
};

struct ChunkPlace {
    std::int32_t chunk = -1;
    std::int64_t offset = 0; // in elements
};

struct ChunkLayout {
    std::vector<Chunk> chunks;
    std::vector<ChunkPlace> places; // per stored tensor

    std::int64_t elements() const;
};

// Entries start at multiples of this many elements: a cache line even for 16-bit types.
constexpr std::int64_t chunk_alignment = run_alignment;

// Packs the stored tensors, in order, into chunks of about `capacity` elements. A larger tensor gets a chunk of its
// own, and so does a tied one, so that every holder of it has the same chunk. A run of tensors that are one parameter
// is packed as one tensor would be, at the place of its first in order. Tensors of two or more dimensions decay.
ChunkLayout lay_out_chunks(const Graph& graph, std::int64_t capacity);

} // namespace tutti

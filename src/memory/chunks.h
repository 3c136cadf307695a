// Chunks: all model data lives in them (flat buffers, as DDP's buckets and FSDP's flat parameters). A layout says where
// each stored tensor lies; weights, gradients, master weights and moments are lists of chunks with the same layout.
#pragma once

#include "base/ranges.h"
#include "graph/graph.h"

#include <span>
#include <vector>

namespace tutti::memory {

constexpr std::size_t chunk_region_count = 5; // lists of chunks: the first regions of a Program

// A stored tensor as chunks see it.
struct ChunkTensor {
    std::int64_t elements = 0;
    bool decays = false;  // weight decay applies
    bool trained = false; // some contribution reaches it; else the optimizer leaves it alone
    int kind = 0;         // tensors of different kinds share no chunk: they are reduced or counted differently
    int run = -1;         // tensors of one run lie together,
    int place_in_run = 0; // in the order of these numbers
    bool alone = false;   // has a chunk of its own
    int block = -1;       // of the model, that uses it first; -1: unknown
    // Where it lies: the answer of lay_out_chunks.
    std::int32_t chunk = -1;
    std::int64_t offset = 0; // in the chunk, in elements

    Range range() const { return {offset, offset + elements}; } // in the chunk
};

struct Chunk {
    std::int64_t elements = 0;           // a multiple of the alignment
    int kind = 0;                        // of all its tensors
    std::vector<std::int32_t> tensors{}; // by their offsets
};

struct ChunkLayout {
    std::vector<Chunk> chunks;
    std::vector<ChunkTensor> tensors; // per stored tensor

    const ChunkTensor& tensor(std::int32_t stored) const { return tensors[static_cast<std::size_t>(stored)]; }
    std::int64_t elements() const;
};

// The stored tensors of a graph, in order. Those of two or more dimensions decay. Tied ones are alone, so that every
// owner of one has the same chunk, and so are those of a head with its loss, which are read while their gradients are
// written: none lie over such weights, and others' may (program/over_weights.h).
std::vector<ChunkTensor> chunk_tensors(const Graph& graph);

// Tensors start at multiples of this many elements: a cache line even for 16-bit types.
constexpr std::int64_t chunk_alignment = run_alignment;

// Packs the tensors, in order, into chunks of about `capacity` elements; a larger one gets a chunk of its own. A run is
// packed as one tensor would be, at the place of its first. A block that does not fit into what is left of a chunk
// begins a new one, so that chunks end where blocks do. The size of a chunk of kind k is a multiple of
// `multiples[k]`, where given, and of the alignment.
ChunkLayout lay_out_chunks(std::span<const ChunkTensor> tensors, std::int64_t capacity,
                           std::span<const std::int64_t> multiples = {});

} // namespace tutti::memory

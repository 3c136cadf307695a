// The size of offloaded chunks, found by laying out a model's real tensors. Computing a block needs every chunk that
// has one of its tensors, so chunks should end where blocks do. Chunks of equal size leave no gaps in the memory that
// they share.
#pragma once

#include "graph/blocks.h"
#include "memory/chunks.h"

namespace tutti::offload {

struct ChunkFit {
    std::int64_t capacity = 0; // elements, for lay_out_chunks
    double utilisation = 0;    // elements of tensors, over those of chunks
    double touched = 0;        // elements that all blocks together need on the device, over those that they use
    double even = 0;           // elements of chunks, were all of inner blocks as large as the largest of them
};

ChunkFit chunk_fit(std::span<const memory::ChunkTensor> tensors, std::span<const Block> blocks, std::int64_t capacity);

// The best of all sizes that end where some tensor does, up to about a layer.
ChunkFit best_chunk_fit(std::span<const memory::ChunkTensor> tensors, std::span<const Block> blocks);
// Of a model's forward graph, as training lays it out.
ChunkFit best_chunk_fit(const Graph& forward);

// Elements of tensors, over those of chunks.
double utilisation(const memory::ChunkLayout& layout);

} // namespace tutti::offload

// The memory of chunks that ZeRO shards over ranks: a stage has them whole only while it uses them.
#pragma once

#include "planner/evaluate/block_chain.h"

namespace tutti::planner {

struct ShardedChunks {
    std::int64_t most = 0;           // elements of a chunk
    double weight = 0, gradient = 0; // bytes of an element that are sharded
    std::vector<double> blocks{};    // elements of every block's own tensors
    std::vector<TiedTensor> ties{};  // in chunks of their own
};

// Bytes that are whole at once, at most: [first block][how many more the stage has].
std::vector<std::vector<double>> open_bytes(const ShardedChunks& chunks);

} // namespace tutti::planner

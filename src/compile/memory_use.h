// MemoryUse: how much of a rank's memory is taken all the time, per micro-batch in flight, and within a task only. It
// is read off the compiled Program, so it is exact; predictions are compared with it.
#pragma once

#include "compile/compile.h"

#include <vector>

namespace tutti::compile {

struct StageUse {
    int stage = 0, replica = 0;
    std::int64_t parameters = 0; // elements of its tensors that this rank owns, before ZeRO shards chunks
    Bytes stash;                 // one micro-batch's, from its forward to its backward
    Bytes recomputed, deferred;  // one micro-batch's, from the recomputation, or the input gradients, on
    Bytes borders;               // one micro-batch's, received, returned and to be sent
    int in_flight = 1;           // micro-batches whose stash is there at once
    Bytes transient;             // the most that a task of the stage has within
};

struct MemoryUse {
    std::vector<StageUse> stages;
    Bytes weights, gradients, optimizer; // chunks, with their padding; master weights count as the optimizer's
    Bytes slots;                         // of all stages, as many as there are
    Bytes transient;                     // the largest of all tasks
    Bytes other;                         // tokens, tables, results

    // All but the workspace of kernels, which only a device knows.
    Bytes total() const { return weights + gradients + optimizer + slots + transient + other; }
};

MemoryUse memory_use_of(std::span<const RankStage> stages, const Compiled& compiled);

// Compiles a rank's part of a training step only to look at it. `forward` as in compile/graphs/rank_graphs.h.
MemoryUse memory_use_of(const Graph& forward, const Plan& plan, int rank);

} // namespace tutti::compile

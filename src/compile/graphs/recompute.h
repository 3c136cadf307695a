// Activation recomputation (activation checkpointing): a block's activations are not kept from its forward to its
// backward, but computed a second time from the block's input. The forward nodes that the backward needs are
// duplicated, collectives among them. Random nodes keep their source, so they draw the same numbers. If the forward
// fused a norm with the sum before it, the sum is kept and only the norm is recomputed, and so the matmul at the end of
// a block is not repeated.
#pragma once

#include "base/units.h"
#include "graph/graph.h"
#include "schedule/parameters.h"

#include <span>
#include <vector>

namespace tutti::compile {

// The step graph with the activations of these blocks recomputed. `early`: as a pass of its own between forward and
// backward, so that all of them are there at once. `on_gradient`: within the backward, each where it is first needed,
// so that a block's are gone when the next block's are made.
Graph recompute(const Graph& step, std::span<const int> blocks, schedule::Recompute when);

// The activations of a block that one micro-batch keeps for its backward, with and without recomputation.
struct BlockActivations {
    int block = 0;
    Bytes kept;       // where it is not recomputed
    Bytes boundary;   // where it is
    Flops recomputed; // of the nodes that are computed a second time
};

// Per block, in order, of a step graph without recomputation. The activation that the stage receives counts for its
// first block.
std::vector<BlockActivations> measure_activations(const Graph& step);

} // namespace tutti::compile

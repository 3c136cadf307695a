// Recomputation: a block's activations are not kept from its forward to its backward, but made again from what crossed
// the cut before it. The forward nodes that the backward needs are duplicated, collectives among them; random nodes
// keep their source, so they draw the same again. Where the forward had fused a norm with the sum before it, that sum
// is kept, and the norm alone is computed again: so the product that ends a block is not.
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

// What one micro-batch keeps of a block for its backward, and what recomputing would do about it.
struct BlockActivations {
    int block = 0;
    Bytes kept;     // where it is not recomputed
    Bytes boundary; // where it is
    Flops again;    // what is computed a second time
};

// Per block of a step graph in which nothing is recomputed yet, in order. What the stage takes over from the one before
// counts for its first block.
std::vector<BlockActivations> measure_activations(const Graph& step);

} // namespace tutti::compile

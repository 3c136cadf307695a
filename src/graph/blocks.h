// Blocks: the forward graph of a model as a linear sequence, the units that pipeline stages are cut from and that
// activations are recomputed by. A block needs nothing but tokens, parameters and what crosses the cut before it.
//
//   embedding | attention | feed-forward | attention | feed-forward | head and loss      a pre-norm decoder
//
// A cut is where one floating activation crosses: the residual stream. Values that many later blocks read (an encoder's
// output, a position bias) do not count; they ride along over every cut up to their last reader. Neither do values that
// any stage makes for itself: views, and cheap functions of tokens and constants (masks, positions, rotary tables).
// What lies between two cuts is a block if there is a matrix product by weights in it, or belongs to the block before:
// so a norm, a dropout, the loss. Sizes of the micro-batch change nothing of this.
#pragma once

#include "graph/graph.h"

#include <vector>

namespace tutti {

struct Block {
    std::vector<NodeId> nodes;   // in the graph's order; without those that any stage makes for itself
    std::vector<ValueId> inputs; // what crosses the cut before it; in order of values, none of them a view
    std::vector<std::int32_t>
        stored; // tensors that it reads, a tied one as others do; in the last block, what none reads, too
    Cost forward;
    std::int64_t parameters = 0; // elements of these tensors
    Bytes activations;           // all that its nodes make: what a backward may need at most
    Bytes boundary;              // of its inputs
};

// In linear time. All nodes of the graph are of the forward pass.
std::vector<Block> find_blocks(const Graph& forward);

} // namespace tutti

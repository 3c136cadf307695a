// A stage as a rank holds it: the step graph of its part of the model, and which part of the stored tensors that is.
#pragma once

#include "graph/graph.h"
#include "mesh/slice.h"

#include <optional>
#include <vector>

namespace tutti {

struct RankStage {
    int stage = 0, copy = 0;
    Graph graph;                       // its stored tensors are the rank's slices
    std::vector<TensorSlice> slices{}; // per stored tensor: of the whole; empty: all of it
    std::vector<bool> partial{}; // per stored tensor: gradients are partial sums over the tensor axis; empty: none

    std::optional<TensorSlice> logits{}; // where the stage ends in them: what of a micro-batch's is here

    TensorSlice slice(std::size_t stored) const {
        return slices.empty() ? TensorSlice::all_of(graph.stored()[stored].type.shape) : slices[stored];
    }
};

} // namespace tutti

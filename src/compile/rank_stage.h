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
    // Per part of the tensor axis (mesh/choices.h) and stored tensor: gradients are partial sums along it; all ranks
    // along it hold the same. Empty: there is no such axis.
    std::vector<std::vector<bool>> partial{}, replicated{};

    // Where the stage ends in them: what of a micro-batch's is here. Of ranks that have the same the first has it.
    std::optional<TensorSlice> logits{};

    TensorSlice slice(std::size_t stored) const {
        return slices.empty() ? TensorSlice::all_of(graph.stored()[stored].type.shape) : slices[stored];
    }
};

} // namespace tutti

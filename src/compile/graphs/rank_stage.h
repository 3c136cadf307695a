// A stage as a rank has it: its step graph, and the slices of the stored tensors that the rank owns.
#pragma once

#include "graph/graph.h"
#include "sharding/slice.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::compile {

struct RankStage {
    int stage = 0, replica = 0;
    Graph graph;                                 // its stored tensors are the rank's slices
    std::vector<sharding::TensorSlice> slices{}; // per stored tensor: of the whole; empty: all of it
    // Per part of the tensor axis (sharding/operator_strategies.h) and stored tensor: gradients are partial sums along
    // it; all ranks along it hold the same. Empty: there is no such axis.
    std::vector<std::vector<bool>> partial{}, replicated{};

    // If this stage produces logits: the slice of a micro-batch's logits that this rank has. Of ranks with the same
    // slice, the first has it.
    std::optional<sharding::TensorSlice> logits{};

    sharding::TensorSlice slice(std::size_t stored) const {
        return slices.empty() ? sharding::TensorSlice::all_of(graph.stored()[stored].type.shape) : slices[stored];
    }
};

// Which stages of the model use a tensor, by its name: of tensors that several use.
using Ties = std::map<std::string, std::vector<int>>;

// A rank among many: which stages of the pipeline it works on comes from the plan's schedule.
struct RankPlace {
    int rank = 0;
    Ties ties{};
};

} // namespace tutti::compile

// Stored tensors of a sharded graph: what of each a rank owns follows from the states of the parameters that are views
// of it.
#pragma once

#include "graph/graph.h"
#include "sharding/sharding.h"
#include "sharding/slice.h"

#include <optional>
#include <span>
#include <vector>

namespace tutti::sharding {

struct StoredPlacement {
    std::vector<TensorSlice> stored;  // per stored tensor
    std::vector<Sharding> states;     // per stored tensor: replicated, or split along a dimension of its own
    std::vector<Sharding> parameters; // per parameter of the graph: as it really is
    std::vector<Layout> layouts;      // per parameter: in what is owned of its stored tensor
};

// `wanted`: per parameter, split or replicated. A stored tensor is split where all its parameters split one and the
// same dimension of it, each for its own piece or alike for the same, and together they are all of it. Else every rank
// owns it whole, and what parts are needed are sliced from it. `given`: per stored tensor its state where that is
// decided elsewhere; `wanted` is then what state_of_view says. Empty: nowhere.
StoredPlacement place_stored(const Graph& graph, std::span<const Sharding> wanted, int rank,
                             std::span<const std::optional<Sharding>> given = {});

// The state of a parameter whose stored tensor is in this state. None where ranks own parts that are no parts of it.
std::optional<Sharding> state_of_view(const Graph& graph, const Parameter& parameter, const Sharding& stored);

} // namespace tutti::sharding

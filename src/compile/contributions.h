// Contributions: gradients of parameters among the outputs of a stage's graph, by the nodes that compute them.
#pragma once

#include "compile/stored_places.h"

#include <map>
#include <span>
#include <vector>

namespace tutti::compile {

struct Contributions {
    std::map<std::size_t, std::vector<std::size_t>> of_node{}; // outputs of the graph
    std::vector<bool> first{};                                 // per output: it overwrites in the first micro-batch
    std::map<std::int32_t, std::size_t> last_of_chunk{};       // node

    const std::vector<std::size_t>& of(std::size_t node) const;
};

// In the order they run, the first to each view of a stored tensor overwrites. Into chunks that are cleared before the
// step all of them add. Bug where two different views of a stored tensor overlap.
Contributions find_contributions(const Graph& graph, std::span<const std::size_t> order, const StoredPlaces& places,
                                 const std::vector<bool>& cleared);

} // namespace tutti::compile

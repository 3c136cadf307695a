// Direct gradients: those that kernels write or add straight into gradient chunks.
#pragma once

#include "compile/node_order.h"
#include "compile/stored_places.h"

namespace tutti::compile {

// Per value. All outputs of a node that it can add into, or none: a kernel either adds or overwrites. `gradients`: the
// type that they are kept in; `cleared`: per chunk, empty: none, whose gradients are cleared before a step.
std::vector<bool> direct_gradients(const Graph& graph, const NodeOrder& order, const StoredPlaces& places,
                                   DType gradients, const std::vector<bool>& cleared);

} // namespace tutti::compile

// Which forward node a backward node computes gradients of.
#pragma once

#include "graph/graph.h"

#include <vector>

namespace tutti::sharding {

// Per node: itself in the forward; in the backward the forward node of the same source whose operator it is, or begins
// with ("linear_input_gradient" with "linear"); none where there is none, or nothing tells which. Sums of gradients
// belong to no node.
std::vector<NodeId> forward_nodes(const Graph& graph);

} // namespace tutti::sharding

// Which forward node a backward node computes gradients of.
#pragma once

#include "graph/graph.h"

#include <vector>

namespace tutti::sharding {

// Per node: itself in the forward; in the backward the forward node of the same source and operator, or the one whose
// operator it is a gradient of (Operator::gradient_of); none where there is none, or nothing tells which. Sums of
// gradients belong to no node.
std::vector<NodeId> forward_nodes(const Graph& graph);

} // namespace tutti::sharding

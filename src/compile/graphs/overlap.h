// Overlap: orders nodes so that collectives overlap with computation. A collective starts where it stands; the nodes
// that follow run beside it, up to the first that reads its result.
#pragma once

#include "graph/graph.h"

namespace tutti::compile {

// The same nodes in an order with more overlap. Weight gradients move behind the collective that follows the input
// gradient of the same layer. Between two collectives, the nodes that do not need the first come first. No node moves
// beyond the next collective, so hardly any value is kept for longer.
Graph overlap_order(const Graph& step);

} // namespace tutti::compile

// Overlap: the order of nodes that lets collectives run beneath what is computed. A collective is started where it
// stands; what follows runs beside it until the first node that reads its result.
#pragma once

#include "graph/graph.h"

namespace tutti::compile {

// The same nodes in an order in which more runs beneath collectives. Weight gradients move behind the collective that
// follows the input gradient of the same layer; and of what stands between a collective and the next, that comes first
// which does not need it. So nothing is moved further than from one collective to the next, and hardly anything has to
// be held for longer.
Graph overlap_order(const Graph& step);

} // namespace tutti::compile

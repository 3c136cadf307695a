// Merging: matmuls that read one input, as the projections to queries, keys and values do, become one matmul with all
// their weights, and views of its result. It runs on a model's graph, before differentiation, so that the gradients are
// single matmuls, too.
#pragma once

#include "graph/graph.h"

namespace tutti {

// Linear nodes with the same input become one whose weight, and bias, is a run of theirs. The weights have to be whole
// stored tensors that are used nowhere else, of sizes that leave no gaps in a run. Values are numbered anew; `followed`
// goes on naming the same one.
Graph merge_linears(const Graph& graph, ValueId& followed);

} // namespace tutti

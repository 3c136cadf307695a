// Passes: graph in, graph out. None moves work between the forward and the backward pass, or recomputation would be
// undone.
#pragma once

#include "graph/graph.h"

namespace tutti {

// Such as a bias that one rank of several adds, and that all of them gather for it.
bool gathers_parameter(const Graph& graph, const Node& node);

// Drops nodes that no output needs, but no gathering of parameters: whether anything else is dead, ranks that share it
// agree on. Inputs, stored tensors and parameters stay.
Graph eliminate_dead_code(const Graph& graph);

// Nodes of one pass with the same operator, attributes and inputs become one. Random nodes differ by their source.
Graph eliminate_common_subexpressions(const Graph& graph);

// Makes every input of every node a layout that its operator accepts, copying with `contiguous` where it is not.
Graph materialise(const Graph& graph);

// The graph as it is evaluated: nothing is dropped.
Graph remove_dropout(const Graph& graph);

} // namespace tutti

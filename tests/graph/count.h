// How many nodes of a graph an operator has.
#pragma once

#include "graph/graph.h"
#include "graph/verify.h"

#include <algorithm>
#include <string_view>

namespace tutti {

// The graph has to hold together, too.
inline std::int64_t count(const Graph& graph, std::string_view op) {
    verify(graph);
    return std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; });
}

} // namespace tutti

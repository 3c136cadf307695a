// The verifier: whether a graph keeps the rules that passes and compilers rely on. Cheap; run after every pass.
#pragma once

#include "graph/graph.h"

namespace tutti {

// Error naming the node and the rule: single assignment, definitions before uses, types as inferred, views within their
// storage, phases in their order, contributions of the shape of their parameter.
void verify(const Graph& graph);

} // namespace tutti

// The text form of a graph: one line per definition, in order; reading back what was printed gives the same graph.
//
//   stored 0 "wte.weight": float32[256,64]
//   input %0 "input_ids": int64[8,32]
//   parameter %1: float32[256,64] = stored 0 strides [64,1] offset 0
//   %2: float32[8,32,64] = embedding(%1, %0) @"wte"
//   %3: float32[8,32,64], %4: float32[8,32], %5: float32[8,32] = layer_norm(%2) {eps=1e-05} @"ln_f" #3
//   backward
//   output "logits" = %3
//   gradient "wte.weight" of %1 = %9
#pragma once

#include "graph/graph.h"

#include <string>
#include <string_view>

namespace tutti {

std::string to_text(const Graph& graph);
// Error naming the line where the text is not a valid graph.
Graph parse_graph(std::string_view text, const OperatorSet& operators);

} // namespace tutti

// Stages: runs of blocks (graph/blocks.h), each a graph of its own. What one hands to the next are values with numbers,
// in the same order and of the same types on both sides of a cut.
//
//   inputs   the tokens that the stage needs, by their names; "stage_input/i": what crosses the cut before it
//   outputs  "stage_output/i": what crosses the cut behind it; in the last stage those of the model: loss, logits
//
// A value that only a later stage reads goes straight from input to output.
#pragma once

#include "graph/blocks.h"
#include "graph/graph.h"
#include "sharding/borders.h"

#include <span>
#include <string_view>
#include <vector>

namespace tutti::compile {

// The stage's part of the forward graph. `cuts` holds the first block of each stage but stage 0. Nodes keep their
// sources, and know their block's number; stored tensors are those that the stage uses, so a tied one is in several
// stages. What no node reads is in the last. Error where the cuts do not fit the blocks.
Graph stage_graph(const Graph& forward, std::span<const Block> blocks, std::span<const int> cuts, int stage);

} // namespace tutti::compile

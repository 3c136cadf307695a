// From a forward graph, of a model or of one of its stages, to the graph of a training step: it is differentiated,
// nodes are fused, and the graph is brought into the form that lowering expects.
//
// A stage's step graph has further inputs and outputs beside those of compile/graphs/stages.h, for what goes the other
// way:
//   inputs   "stage_output_gradient/i" for every floating "stage_output/i"
//   outputs  "stage_input_gradient/i" for every floating "stage_input/i", dense
#pragma once

#include "graph/fuse.h"
#include "graph/graph.h"
#include "sharding/borders.h"

#include <string_view>

namespace tutti::compile {

// Appends the backward pass of the output "loss", where there is one, and of the stage's outputs. The seed of the loss
// is loss_scale / counted targets of the whole global batch, read per step, so that contributions of micro-batches and
// ranks simply add up to the gradient of the mean. Nothing is fused yet: here a stage is sharded over ranks.
Graph differentiated(Graph forward, bool merge_linears);

// Fuses, and copies where a kernel does not take a layout.
Graph finished(Graph step, const FusionOptions& fusion);

// Both at once, with nothing between, of a whole model: `loss` is its output "loss".
Graph make_training_graph(Graph forward, ValueId loss, const FusionOptions& fusion = {});

// The forward pass alone, for evaluation and sampling.
Graph make_forward_graph(const Graph& forward);

} // namespace tutti::compile

// From a model's forward graph to the graph of a training step: the loss is differentiated, nodes are fused, and the
// graph is brought into the form that lowering expects.
#pragma once

#include "graph/fuse.h"
#include "graph/graph.h"

namespace tutti {

// Appends the backward pass of `loss`. The seed is loss_scale / counted targets of the whole global batch, read per
// step, so that contributions of micro-batches and ranks simply add up to the gradient of the mean.
Graph make_training_graph(Graph forward, ValueId loss, const FusionOptions& fusion = {});

// The forward pass alone, for evaluation and sampling.
Graph make_forward_graph(const Graph& forward);

} // namespace tutti

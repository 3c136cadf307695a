// Fusion: nodes that would read and write the same rows one after the other become one node. These passes run on the
// graph of a step, after differentiation; the operators that they make have no gradients. A pattern has to match
// exactly. A node is moved only within its phase, to the place where its last input is computed.
#pragma once

#include "graph/graph.h"

namespace tutti {

struct FusionOptions {
    bool elementwise = true; // sums with norms and matmuls, gated activations
    bool norm_weights =
        true;         // a norm's weight gradients with its input gradient: not where weight gradients come later
    bool head = true; // the head with its loss: the output "logits" is no more
    bool merge_linears = true;                 // matmuls of one input: graph/merge.h
    Bytes head_logits{std::int64_t{64} << 20}; // most that a fused head may have at a time

    bool operator==(const FusionOptions&) const = default;
};
inline constexpr FusionOptions no_fusion{false, false, false, false, {}};

Graph fuse(Graph graph, const FusionOptions& options);

// add(x, delta), then layer_norm or rms_norm -> add_layer_norm, add_rms_norm
Graph fuse_added_norms(const Graph& graph);

// multiply(act(gate), up) and its three gradient nodes -> gated, gated_gradient: act(gate) is not kept for the backward
Graph fuse_gated(const Graph& graph);

// Both gradients of a norm, and the sum of its input gradient with another -> layer_norm_gradient, rms_norm_gradient
Graph fuse_norm_gradients(const Graph& graph);

// add(other, linear_input_gradient(dy, w)) -> linear_input_gradient(dy, w, other)
Graph fuse_matmul_sums(const Graph& graph);

// linear, cross_entropy and their gradients -> linear_cross_entropy_gradient, where nothing else reads the logits. The
// loss is then a result of the backward.
Graph fuse_head(const Graph& graph, Bytes logits);

} // namespace tutti

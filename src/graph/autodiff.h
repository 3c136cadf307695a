// Reverse-mode differentiation: appends to a graph the nodes that compute the gradient of a scalar, or carry gradients
// from a pipeline stage's outputs to its inputs.
//
// Gradients of activations with several uses are added. Gradients of parameters are not: each use yields a
// contribution, an output of the graph that names its parameter, so that the executor accumulates it where gradients
// are kept, a tie may span pipeline stages, and accumulation over micro-batches costs nothing.
#pragma once

#include "graph/graph.h"

namespace tutti {

// What an operator's gradient function sees of the node being differentiated.
class GradientBuilder {
  public:
    GradientBuilder(Graph& graph, NodeId node, std::vector<ValueId> output_gradients, std::vector<bool> wanted);

    std::size_t input_count() const { return inputs_.size(); }
    ValueId input(std::size_t i) const { return inputs_[i]; }
    ValueId output(std::size_t i) const { return outputs_[i]; }
    // The gradient of an output; only of those that influence the loss: see has_gradient.
    ValueId gradient(std::size_t i = 0) const;
    bool has_gradient(std::size_t i) const { return output_gradients_[i] != ValueId::none; }
    // For operators whose further outputs are statistics kept for the backward: Error where a loss depends on one.
    void expect_only_first_output() const;
    bool wants(std::size_t i) const { return i < wanted_.size() && wanted_[i]; }
    const Attributes& attributes() const { return attributes_; }
    const TensorType& type(ValueId value) const { return graph_->type(value); }
    const Shape& shape(ValueId value) const { return graph_->shape(value); }

    NodeId emit_node(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
    ValueId emit(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
    ValueId output_of(NodeId node, std::size_t i) const { return graph_->node(node).outputs[i]; }
    // A scalar of the type's element type.
    ValueId constant(DType dtype, double value);
    // Sums over the dimensions that broadcasting had added, back to the shape of input i.
    ValueId reduce_to_input(ValueId value, std::size_t i);

    void set(std::size_t i, ValueId gradient) { gradients_[i] = gradient; }
    const std::vector<ValueId>& results() const { return gradients_; }

  private:
    Graph* graph_;
    std::vector<ValueId> inputs_, outputs_; // copies: emitting nodes may move the graph's own
    Attributes attributes_;
    std::string source_;
    std::vector<ValueId> output_gradients_;
    std::vector<bool> wanted_;
    std::vector<ValueId> gradients_;
};

// Appends the backward nodes of `loss`, whose own gradient is `seed`, and an output per contribution, named after the
// stored tensor.
void differentiate(Graph& graph, ValueId loss, ValueId seed);

// Where a gradient comes in: that of `of` is `gradient`, beside what the graph's own nodes send it.
struct GradientSeed {
    ValueId of = ValueId::none;
    ValueId gradient = ValueId::none;
};

// The same with several seeds. Returns the gradients of the `wanted` inputs of the graph; none of one that influences
// no seeded value.
std::vector<ValueId> differentiate(Graph& graph, std::span<const GradientSeed> seeds, std::span<const ValueId> wanted);

} // namespace tutti

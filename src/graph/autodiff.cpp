#include "graph/autodiff.h"

#include "base/error.h"

#include <algorithm>

namespace tutti {

GradientBuilder::GradientBuilder(Graph& graph, NodeId node, std::vector<ValueId> output_gradients,
                                 std::vector<bool> wanted)
    : graph_(&graph), inputs_(graph.node(node).inputs), outputs_(graph.node(node).outputs),
      attributes_(graph.node(node).attributes), source_(graph.node(node).source),
      output_gradients_(std::move(output_gradients)), wanted_(std::move(wanted)),
      gradients_(inputs_.size(), ValueId::none) {}

ValueId GradientBuilder::gradient(std::size_t i) const {
    TUTTI_CHECK(has_gradient(i), "output {} has no gradient", i);
    return output_gradients_[i];
}

void GradientBuilder::expect_only_first_output() const {
    for (std::size_t i = 1; i < outputs_.size(); ++i)
        if (has_gradient(i)) fail("the loss depends on output {} of {}, a statistic without a gradient", i, source_);
}

NodeId GradientBuilder::emit_node(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
    return graph_->add_node(op, std::move(inputs), std::move(attributes), source_);
}

ValueId GradientBuilder::emit(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
    return output_of(emit_node(op, std::move(inputs), std::move(attributes)), 0);
}

ValueId GradientBuilder::constant(DType dtype, double value) {
    return emit("fill", {},
                {{"dtype", std::string(name_of(dtype))}, {"shape", std::vector<std::int64_t>{}}, {"value", value}});
}

ValueId GradientBuilder::reduce_to_input(ValueId value, std::size_t i) {
    const Shape target = shape(input(i)), from = shape(value);
    if (target == from) return value;
    const int added = from.rank() - target.rank();
    std::vector<std::int64_t> dims;
    for (int d = 0; d < from.rank(); ++d)
        if (d < added || (target[d - added] == 1 && from[d] != 1)) dims.push_back(d);
    const ValueId reduced = emit("reduce_sum", {value}, {{"dims", dims}, {"keep", false}});
    if (shape(reduced) == target) return reduced;
    return emit("reshape", {reduced}, {{"shape", std::vector<std::int64_t>(target.begin(), target.end())}});
}

namespace {

class Backward {
  public:
    Backward(Graph& graph, std::span<const ValueId> wanted) : graph_(graph), forward_(graph.nodes().size()) {
        mark_differentiable(wanted);
        gradients_.resize(graph.values().size());
    }

    bool depends(ValueId value) const { return needs_[index(value)]; }

    void run(std::span<const GradientSeed> seeds) {
        for (const GradientSeed& seed : seeds)
            if (depends(seed.of)) gradients_[index(seed.of)].push_back(seed.gradient);
        for (std::size_t i = forward_; i-- > 0;) visit(static_cast<NodeId>(i));
        for (const Parameter& parameter : graph_.parameters())
            for (ValueId contribution : gradients_[index(parameter.value)])
                graph_.add_output({graph_.value(parameter.value).name, contribution, parameter.value});
    }

    // All uses of the value have been visited: add up what they sent.
    ValueId sum(ValueId value, const std::string& source) {
        const std::vector<ValueId>& sent = gradients_[index(value)];
        if (sent.empty()) return ValueId::none;
        ValueId total = sent[0];
        for (std::size_t i = 1; i < sent.size(); ++i) total = graph_.add("add", {total, sent[i]}, {}, source);
        return total;
    }

  private:
    // A value needs a gradient if it is floating and a parameter, or a wanted input, reaches it through operators that
    // have one.
    void mark_differentiable(std::span<const ValueId> wanted) {
        needs_.assign(graph_.values().size(), false);
        for (ValueId input : wanted) needs_[index(input)] = true;
        for (const Parameter& parameter : graph_.parameters()) needs_[index(parameter.value)] = true;
        for (const Node& node : graph_.nodes()) {
            const bool reached = std::ranges::any_of(node.inputs, [&](ValueId v) { return needs_[index(v)]; });
            if (!reached || !node.op->gradient) continue;
            for (ValueId output : node.outputs) needs_[index(output)] = is_floating(graph_.type(output).dtype);
        }
    }

    void visit(NodeId id) {
        const std::vector<ValueId> outputs = graph_.node(id).outputs; // a copy: adding nodes moves the others
        const std::string source = graph_.node(id).source;
        graph_.set_block(graph_.node(id).block);
        std::vector<ValueId> output_gradients;
        bool reaches_loss = false;
        for (ValueId output : outputs) {
            output_gradients.push_back(sum(output, source));
            reaches_loss |= output_gradients.back() != ValueId::none;
        }
        if (!reaches_loss) return;
        std::vector<bool> wanted;
        for (ValueId input : graph_.node(id).inputs) wanted.push_back(needs_[index(input)]);
        GradientBuilder builder(graph_, id, std::move(output_gradients), wanted);
        graph_.node(id).op->gradient(builder);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const ValueId gradient = builder.results()[i];
            if (!wanted[i]) continue;
            const Node& done = graph_.node(id);
            TUTTI_CHECK(gradient != ValueId::none, "{} gave no gradient for input {}", done.op->name, i);
            TUTTI_CHECK(graph_.shape(gradient) == graph_.shape(done.inputs[i]), "{} gave {} for input {} of {}",
                        done.op->name, to_string(graph_.type(gradient)), i, to_string(graph_.type(done.inputs[i])));
            gradients_[index(done.inputs[i])].push_back(as_type_of(done.inputs[i], gradient));
        }
    }

    // Weight gradients are wider than 16-bit weights. Chunks keep them so; an activation's gradient has its own type.
    ValueId as_type_of(ValueId value, ValueId gradient) {
        const DType dtype = graph_.type(value).dtype;
        const Value& held = graph_.value(value);
        if (graph_.type(gradient).dtype == dtype || graph_.parameter_of(held.storage) != nullptr) return gradient;
        return graph_.add("cast", {gradient}, {{"dtype", std::string(name_of(dtype))}});
    }

    Graph& graph_;
    std::size_t forward_;
    std::vector<bool> needs_;
    std::vector<std::vector<ValueId>> gradients_; // per forward value, one per use
};

} // namespace

void differentiate(Graph& graph, ValueId loss, ValueId seed) {
    graph.begin(Phase::backward);
    Backward backward(graph, {});
    TUTTI_CHECK(backward.depends(loss), "the loss does not depend on any parameter");
    const GradientSeed only{loss, seed};
    backward.run({&only, 1});
}

std::vector<ValueId> differentiate(Graph& graph, std::span<const GradientSeed> seeds, std::span<const ValueId> wanted) {
    graph.begin(Phase::backward);
    Backward backward(graph, wanted);
    backward.run(seeds);
    std::vector<ValueId> gradients;
    for (ValueId input : wanted) gradients.push_back(backward.sum(input, {}));
    return gradients;
}

} // namespace tutti

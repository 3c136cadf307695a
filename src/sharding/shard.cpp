#include "sharding/shard.h"

#include "base/error.h"
#include "graph/verify.h"
#include "sharding/borders.h"
#include "sharding/reshard.h"
#include "sharding/stored.h"

namespace tutti::sharding {
namespace {

class Lowering {
  public:
    Lowering(const Graph& from, const AxisPlace& place, const Assignment& assignment, bool more_axes)
        : from_(from), place_(place), assignment_(assignment), more_axes_(more_axes),
          stored_(place_stored(from, assignment.parameters, place.rank, assignment.stored)), to_(from.operators()),
          there_(from.values().size()), outputs_(from.outputs().size()), lowered_(from.outputs().size(), ValueId::none),
          contributions_(from.values().size()) {
        for (std::size_t i = 0; i < from.outputs().size(); ++i)
            if (from.outputs()[i].parameter != ValueId::none)
                contributions_[index(from.outputs()[i].value)].push_back(i);
        TUTTI_CHECK(assignment.nodes.size() == from.nodes().size() &&
                        assignment.inputs.size() == from.inputs().size() &&
                        assignment.outputs.size() == from.outputs().size(),
                    "an assignment of {} nodes for a graph of {}", assignment.nodes.size(), from.nodes().size());
    }

    Sharded run() {
        add_inputs();
        for (std::size_t i = 0; i < from_.nodes().size(); ++i) {
            const Node& node = from_.nodes()[i];
            if (node.phase == Phase::backward && !backward_) begin_backward();
            to_.set_block(node.block);
            lower(node, assignment_.nodes[i], static_cast<NodeId>(i));
        }
        if (!backward_) lower_outputs(false);
        lower_outputs(true);
        lower_contributions();
        for (std::size_t i = 0; i < from_.outputs().size(); ++i) {
            const Output& output = from_.outputs()[i];
            const ValueId parameter =
                output.parameter == ValueId::none ? ValueId::none : there_[index(output.parameter)][0].value;
            to_.add_output({output.name, lowered_[i], parameter});
        }
        verify(to_);
        origins_.resize(to_.nodes().size(), NodeId::none);
        return {std::move(to_),      std::move(stored_.stored), std::move(partial_),      assignment_.inputs,
                std::move(outputs_), std::move(origins_),       std::move(stored_.states)};
    }

  private:
    TensorType local(ValueId value, const Sharding& state) const {
        return {from_.type(value).dtype, local_shape(from_.shape(value), state, place_.rank)};
    }

    void add_inputs() {
        for (std::size_t i = 0; i < from_.inputs().size(); ++i) {
            const ValueId input = from_.inputs()[i];
            const Sharding& state = assignment_.inputs[i];
            TUTTI_CHECK(!state.is_partial(), "input {} is partial", from_.value(input).name);
            add_representation(input, {state, to_.add_input(from_.value(input).name, local(input, state))});
        }
        for (std::size_t s = 0; s < from_.stored().size(); ++s) {
            const StoredTensor& stored = from_.stored()[s];
            to_.add_stored(stored.name, {stored.type.dtype, stored_.stored[s].shape()});
        }
        for (std::size_t p = 0; p < from_.parameters().size(); ++p) {
            const Parameter& parameter = from_.parameters()[p];
            const Sharding& state = stored_.parameters[p];
            add_representation(
                parameter.value,
                {state, to_.add_parameter(parameter.stored, local(parameter.value, state).shape, stored_.layouts[p])});
        }
    }

    void add_representation(ValueId value, Representation representation) {
        there_[index(value)].push_back(std::move(representation));
    }

    // The local value of a state; made where it is not there yet.
    ValueId get(ValueId value, const Sharding& wanted, const std::string& source, bool keep = false) {
        std::vector<Representation>& there = there_[index(value)];
        std::size_t at = cheapest(there, wanted, from_.type(value).bytes(), place_.size, backward_);
        for (const Sharding& state : route(there[at].state, wanted)) {
            there.push_back(reshard(to_, there[at], state, place_, backward_, source));
            at = there.size() - 1;
        }
        if (keep && from_.parameter_of(value) == nullptr) there[at].gathered = false;
        return there[at].value;
    }

    void lower(const Node& node, const Strategy& strategy, NodeId id) {
        const std::optional<OperandStates> placement = placement_of(from_, node, strategy, place_.size);
        TUTTI_CHECK(placement.has_value(), "a strategy for {} at {} is not legal", node.op->name, node.source);
        std::vector<ValueId> inputs;
        for (std::size_t i = 0; i < node.inputs.size(); ++i)
            inputs.push_back(get(node.inputs[i], placement->inputs[i], node.source, keeps(id)));
        origins_.resize(to_.nodes().size(), NodeId::none);
        const Attributes attributes = local_attributes(from_, node, strategy, place_.rank);
        const std::vector<ValueId> outputs = emit(node, strategy, *placement, std::move(inputs), attributes);
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
            const Sharding& state = placement->outputs[i];
            TUTTI_CHECK(to_.type(outputs[i]) == local(node.outputs[i], state), "output {} of {} at {} is {}", i,
                        node.op->name, node.source, to_string(to_.type(outputs[i])));
            add_representation(node.outputs[i], {state, outputs[i]});
        }
        for (std::size_t n = origins_.size(); n < to_.nodes().size(); ++n)
            origins_.push_back(is_part(to_.nodes()[n], node) ? id : NodeId::none);
        for (ValueId output : node.outputs) lower_contributions_of(output);
    }

    bool keeps(NodeId node) const { return !assignment_.keeps.empty() && assignment_.keeps[index(node)]; }

    // Whether a local node does what the whole one does; others copy and communicate.
    static bool is_part(const Node& local, const Node& whole) {
        const auto& loss = whole.op->loss;
        return local.op == whole.op || (loss && (local.op->name == loss->part || local.op->name == loss->join));
    }

    // Gradients of split parameters are brought to their state at once: what they come in may be much larger.
    void lower_contributions_of(ValueId value) {
        for (std::size_t i : contributions_[index(value)])
            if (const Sharding& state = state_of(from_.outputs()[i].parameter); state.is_split()) finish(i, state);
    }

    std::vector<ValueId> emit(const Node& node, const Strategy& strategy, const OperandStates& placement,
                              std::vector<ValueId> inputs, Attributes attributes) {
        // The ranks' matmuls are added up, and with them one bias: the first rank's. The others leave theirs out, or
        // add nothing of it where all ranks have to do the same: to gather it, or to be split along a further axis
        // alike.
        const auto& product = node.op->product;
        if (product && placement.outputs[0].is_partial() && inputs.size() > product->bias) {
            if (more_axes_ || is_communicated(inputs.back()))
                inputs.back() = times(inputs.back(), place_.rank == 0 ? 1 : 0, node.source);
            else if (place_.rank > 0)
                inputs.pop_back();
        }
        if (node.op->loss && placement.inputs[0].is_split() &&
            placement.inputs[0].dim == from_.shape(node.inputs[0]).rank() - 1)
            return emit_loss(node, strategy, inputs, std::move(attributes));
        return to_.node(to_.add_node(node.op->name, std::move(inputs), std::move(attributes), node.source)).outputs;
    }

    bool is_communicated(ValueId value) const {
        const NodeId producer = to_.value(value).producer;
        if (producer == NodeId::none) return false;
        const Node& node = to_.node(producer);
        return node.op->collective ||
               std::ranges::any_of(node.inputs, [&](ValueId input) { return is_communicated(input); });
    }

    ValueId times(ValueId value, double factor, const std::string& source) {
        const std::string dtype(name_of(to_.type(value).dtype));
        const std::vector<std::int64_t> scalar;
        const ValueId constant = to_.add("fill", {}, {{"dtype", dtype}, {"shape", scalar}, {"value", factor}}, source);
        return to_.add("multiply", {value, constant}, {}, source);
    }

    // The loss of logits that are split by classes: statistics of every part, gathered, then joined.
    std::vector<ValueId> emit_loss(const Node& node, const Strategy& strategy, const std::vector<ValueId>& inputs,
                                   Attributes attributes) {
        const Attributes whole = attributes;
        attributes.set("first_class", strategy.parts[static_cast<std::size_t>(place_.rank)][0].begin);
        attributes.set("classes", from_.shape(node.inputs[0]).back());
        const Representation part{Sharding::split(0, even_parts(place_.size, 1, place_.size)),
                                  to_.add(node.op->loss->part, inputs, std::move(attributes), node.source)};
        const ValueId all = reshard(to_, part, {}, place_, backward_, node.source).value;
        return to_.node(to_.add_node(node.op->loss->join, {all, inputs[1]}, whole, node.source)).outputs;
    }

    // ---- Outputs

    void begin_backward() {
        lower_outputs(false);
        backward_ = true;
        to_.begin(Phase::backward);
    }

    const Sharding& state_of(ValueId value) const { return there_[index(value)][0].state; }

    bool is_of_backward(ValueId value) const {
        const NodeId producer = from_.value(value).producer;
        return producer != NodeId::none && from_.node(producer).phase == Phase::backward;
    }

    // Those of one pass that are not gradients of parameters. What the forward returns has to be there when it ends.
    void lower_outputs(bool backward) {
        for (std::size_t i = 0; i < from_.outputs().size(); ++i) {
            const Output& output = from_.outputs()[i];
            if (output.parameter == ValueId::none && is_of_backward(output.value) == backward) finish(i, wanted_of(i));
        }
    }

    Sharding wanted_of(std::size_t i) const {
        const Output& output = from_.outputs()[i];
        if (output.name == "loss") return {};
        if (const auto input = input_across(from_, output, stage_input_gradient, stage_input))
            return assignment_.inputs[*input];
        if (assignment_.outputs[i]) return *assignment_.outputs[i];
        return state_of(output.value).is_partial() ? Sharding{} : state_of(output.value);
    }

    void finish(std::size_t i, const Sharding& wanted) {
        const ValueId value = from_.outputs()[i].value;
        const NodeId producer = from_.value(value).producer;
        lowered_[i] = get(value, wanted, producer == NodeId::none ? std::string() : from_.node(producer).source);
        outputs_[i] = wanted;
    }

    // Gradients of a stored tensor are all partial sums or all not, as they are accumulated in one place.
    void lower_contributions() {
        partial_.assign(from_.stored().size(), true);
        std::vector<bool> trained(from_.stored().size(), false);
        auto stored_of = [&](const Output& output) {
            return static_cast<std::size_t>(from_.parameter_of(output.parameter)->stored);
        };
        for (const Output& output : from_.outputs()) {
            if (output.parameter == ValueId::none) continue;
            trained[stored_of(output)] = true;
            if (state_of(output.value) != Sharding::partial() || state_of(output.parameter).is_split())
                partial_[stored_of(output)] = false;
        }
        for (std::size_t s = 0; s < trained.size(); ++s) {
            const bool reduced = !assignment_.reduced.empty() && assignment_.reduced[s];
            partial_[s] = partial_[s] && trained[s] && !reduced;
        }
        for (std::size_t i = 0; i < from_.outputs().size(); ++i) {
            const Output& output = from_.outputs()[i];
            if (output.parameter == ValueId::none || lowered_[i] != ValueId::none) continue;
            finish(i, partial_[stored_of(output)] ? Sharding::partial() : state_of(output.parameter));
        }
    }

    const Graph& from_;
    const AxisPlace& place_;
    const Assignment& assignment_;
    const bool more_axes_;
    StoredPlacement stored_;
    Graph to_;
    bool backward_ = false;
    std::vector<std::vector<Representation>> there_; // per value of the whole graph, as it came first
    std::vector<Sharding> outputs_;
    std::vector<ValueId> lowered_;                        // outputs
    std::vector<std::vector<std::size_t>> contributions_; // per value: outputs that are gradients of parameters
    std::vector<NodeId> origins_;
    std::vector<bool> partial_;
};

// On an axis of one rank everything is as it is.
Sharded alone(const Graph& graph) {
    Sharded result{graph, {}, std::vector<bool>(graph.stored().size(), false), {}, {}, {}, {}};
    result.states.resize(graph.stored().size());
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) result.origins.push_back(static_cast<NodeId>(i));
    for (const StoredTensor& stored : graph.stored()) result.stored.push_back(TensorSlice::all_of(stored.type.shape));
    result.inputs.resize(graph.inputs().size());
    result.outputs.resize(graph.outputs().size());
    return result;
}

} // namespace

Sharded shard(const Graph& graph, const AxisPlace& place, const Assignment& assignment, bool more_axes) {
    TUTTI_CHECK(place.rank >= 0 && place.rank < place.size, "rank {} of {}", place.rank, place.size);
    if (place.size == 1) return alone(graph);
    return Lowering(graph, place, assignment, more_axes).run();
}

} // namespace tutti::sharding

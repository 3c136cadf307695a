// The assignment for people who do not search for one: Megatron's, found from the graph alone. Where something is asked
// of a node it does that, and its neighbours follow.
//
// The forward pass is gone through once. Products that read a parameter are split by its rows or columns: by what comes
// in where that is split already, else so that what goes out is split, in the way that is wished for further on. The
// vocabulary is split in the embedding and the head. All other nodes, and the whole backward pass, take what moves the
// fewest bytes, given the states in which their inputs are there.
#include "base/error.h"
#include "sharding/borders.h"
#include "sharding/operator_strategies.h"
#include "sharding/preferred_states.h"
#include "sharding/reshard.h"
#include "sharding/sequence_dims.h"
#include "sharding/shard.h"
#include "sharding/stored.h"
#include "sharding/value_states.h"

#include <algorithm>
#include <limits>

namespace tutti::sharding {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

class Choice {
  public:
    Choice(const Graph& graph, const AxisPlace& place, const ShardOptions& options)
        : graph_(graph), place_(place), options_(options),
          preferred_(find_preferred_states(graph, place, options.nodes)), states_(graph, place.size, options.sharded),
          sequence_(graph), uses_(graph.values().size(), 0), returned_(graph.values().size()) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs)
                if (const NodeId producer = graph.value(input).producer;
                    producer == NodeId::none || graph.node(producer).phase == node.phase)
                    ++uses_[index(input)];
        for (const Output& output : graph.outputs()) returned_[index(output.value)].push_back(&output);
        result_.inputs.resize(graph.inputs().size());
        result_.parameters.resize(graph.parameters().size());
        result_.outputs.resize(graph.outputs().size());
    }

    Assignment run() {
        set_stored();
        for (std::size_t i = 0; i < graph_.inputs().size(); ++i) set_input(i);
        for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
            const Node& node = graph_.nodes()[n];
            if (node.phase == Phase::backward && !states_.in_backward()) end_forward();
            sequence_.follow(node);
            const NodeRequest asked = options_.nodes.empty() ? NodeRequest{} : options_.nodes[n];
            Strategy strategy = choose(node, asked);
            apply(node, strategy, asked);
            result_.nodes.push_back(std::move(strategy));
            result_.keeps.push_back(asked.keep_gathered);
        }
        if (!states_.in_backward()) end_forward();
        for (std::size_t p = 0; p < graph_.parameters().size(); ++p)
            result_.parameters[p] = states_.of_parameter(graph_.parameters()[p].value);
        return std::move(result_);
    }

  private:
    void apply(const Node& node, const Strategy& strategy, const NodeRequest& asked) {
        const auto placement = placement_of(graph_, node, strategy, place_.size);
        for (std::size_t i = 0; i < node.inputs.size(); ++i)
            states_.bring(node.inputs[i], placement->inputs[i], asked.keep_gathered);
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
            states_.add(node.outputs[i], placement->outputs[i]);
            if (states_.in_backward() && asked.reduce_at_once && placement->outputs[i] == Sharding::partial())
                if (const auto state = state_of_input(asked.forward, node.outputs[i]))
                    states_.bring(node.outputs[i], *state);
        }
    }

    // The state of the activation that this may be the gradient of. None for gradients of parameters.
    std::optional<Sharding> state_of_input(NodeId forward, ValueId gradient) const {
        if (forward == NodeId::none) return std::nullopt;
        for (ValueId input : graph_.node(forward).inputs)
            if (!states_.is_parameter(input) && !states_.is_open(input) &&
                graph_.shape(input) == graph_.shape(gradient))
                return states_.is_partial(input) ? Sharding{} : states_.of(input);
        return std::nullopt;
    }

    // The state between matmuls, where there is a sequence to split.
    std::optional<Sharding> along_sequence(ValueId value) const {
        const int dim = sequence_.of(value);
        if (!options_.sequence_parallel || dim < 0 || graph_.shape(value)[dim] < place_.size) return std::nullopt;
        return Sharding::split(dim, even_parts(graph_.shape(value)[dim], 1, place_.size));
    }

    // ---- The borders of the graph

    void set_stored() {
        result_.stored = options_.stored;
        result_.reduced = options_.reduced;
        if (options_.stored.empty()) return;
        for (const Parameter& parameter : graph_.parameters())
            if (const auto& given = options_.stored[static_cast<std::size_t>(parameter.stored)]) {
                const std::optional<Sharding> state = state_of_view(graph_, parameter, *given);
                TUTTI_CHECK(state.has_value(), "{} is no part of what ranks own of its tensor",
                            graph_.value(parameter.value).name);
                states_.set(parameter.value, *state);
            }
    }

    void set_input(std::size_t i) {
        const ValueId input = graph_.inputs()[i];
        const std::string& name = graph_.value(input).name;
        const auto given = options_.inputs.find(name);
        if (given != options_.inputs.end()) result_.inputs[i] = given->second;
        const bool per_token = name == "input_ids" || name == "targets" || name == "documents";
        sequence_.set(input, per_token ? 1 : result_.inputs[i].dim);
        if (given != options_.inputs.end() || !name.starts_with(stage_output_gradient))
            states_.set(input, result_.inputs[i]);
    }

    // What a stage sends on is whole or split, and its gradient comes back the same way.
    void end_forward() {
        for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
            const Output& output = graph_.outputs()[i];
            if (!output.name.starts_with(stage_output)) continue;
            Sharding state = states_.of(output.value);
            if (state.is_partial()) state = along_sequence(output.value).value_or(Sharding{});
            states_.bring(output.value, state);
            result_.outputs[i] = state;
            const auto gradient = input_across(graph_, output, stage_output, stage_output_gradient);
            if (!gradient || !states_.is_open(graph_.inputs()[*gradient])) continue;
            const ValueId input = graph_.inputs()[*gradient];
            result_.inputs[*gradient] = state;
            states_.set(input, state);
            sequence_.set(input, sequence_.of(output.value));
        }
        for (ValueId input : graph_.inputs())
            if (states_.is_open(input)) states_.set(input, {});
        states_.begin_backward();
    }

    // ---- OperatorStrategies

    Strategy choose(const Node& node, const NodeRequest& asked) const {
        if (asked.split != follows)
            if (const auto strategy = as_asked(node, asked.split)) return *strategy;
        if (!states_.in_backward() && !node.op->heads.empty()) return split_heads(graph_, node, place_);
        if (!states_.in_backward() && has_matrix(graph_, node))
            for (const Strategy& strategy : node.op->product ? products(node) : lookups(node))
                if (cost_of(node, strategy) < never) return strategy;
        return cheapest_of(node, candidates(node));
    }

    // Forward nodes can do it; of the backward those that have the loop.
    std::optional<Strategy> as_asked(const Node& node, std::string_view split) const {
        if (split == on_every_rank) return Strategy{};
        if (split == on_partial_sums) {
            const Strategy strategy = Strategy::keep_partial(partial_inputs(node));
            if (strategy.partial != 0 && placement_of(graph_, node, strategy, place_.size)) return strategy;
            if (!states_.in_backward())
                fail(
                    "{} at {} is asked to keep partial sums along the {} axis, and does not get any that it could keep",
                    node.op->name, node.source, place_.axis);
            return std::nullopt;
        }
        const int loop = loop_named(graph_, node, split);
        std::vector<Strategy> fitting;
        auto offer = [&](const std::vector<Strategy>& some) {
            for (const Strategy& strategy : some)
                if (strategy.loop == loop) fitting.push_back(strategy);
        };
        if (loop >= 0) {
            offer(preferred(node));
            for (std::size_t i = 0; i < node.inputs.size(); ++i) offer(following(node, i));
            offer(wanted_by_parameters(node));
            offer(strategies_of(graph_, graph_.value(node.outputs[0]).producer, place_.size));
        }
        if (fitting.empty() && !states_.in_backward())
            fail("{} at {} cannot be split by {} over the {} ranks of the {} axis{}", node.op->name, node.source, split,
                 place_.size, place_.axis, why_not(node, loop));
        if (fitting.empty()) return std::nullopt;
        Strategy best = fitting[0];
        for (const Strategy& strategy : fitting)
            if (cost_of(node, strategy) < cost_of(node, best)) best = strategy;
        return best;
    }

    std::string why_not(const Node& node, int number) const {
        if (number < 0) return ": it has no such loop here";
        const Loop loop = loops_of(graph_, node).loops[static_cast<std::size_t>(number)];
        return loop.size < place_.size ? fmt::format(": its size is {}", loop.size) : ": that loop has to stay whole";
    }

    std::vector<Strategy> preferred(const Node& node) const {
        return strategies_with_preferences(graph_, node, preferred_, place_.size);
    }

    std::vector<Strategy> products(const Node& node) const {
        std::vector<Strategy> result;
        auto offer = [&](std::vector<Strategy> some) { result.insert(result.end(), some.begin(), some.end()); };
        const std::optional<PreferredState>& preferred = preferred_[index(node.outputs[0])];
        const int rows = loop_named(graph_, node, node.op->product->out_features),
                  columns = loop_named(graph_, node, node.op->product->in_features);
        if (preferred && preferred->strong)
            offer(strategies_with(graph_, node, Side::outputs, 0, {&preferred->state, 1}, place_.size));
        for (Strategy& strategy : following(node, 0))
            if (strategy.loop == columns) result.push_back(std::move(strategy));
        if (preferred) offer(strategies_with(graph_, node, Side::outputs, 0, {&preferred->state, 1}, place_.size));
        result.push_back(split_evenly(graph_, node, rows, place_.size));
        result.push_back(split_evenly(graph_, node, columns, place_.size));
        return result;
    }

    // Words are many, so their table is split. Positions and the like are few; everybody has them.
    std::vector<Strategy> lookups(const Node& node) const {
        const TableLookup& lookup = *node.op->lookup;
        const bool tokens = graph_.value(node.inputs[lookup.indices]).producer == NodeId::none;
        if (tokens) return {split_evenly(graph_, node, loop_named(graph_, node, lookup.rows), place_.size), {}};
        return {{}};
    }

    std::vector<Strategy> following(const Node& node, std::size_t input) const {
        std::vector<Sharding> states;
        for (ValueId value : node.inputs) states.push_back(states_.is_open(value) ? Sharding{} : states_.of(value));
        return strategies_with(graph_, node, Side::inputs, input, states, place_.size);
    }

    // In order of preference where they cost the same.
    std::vector<Strategy> candidates(const Node& node) const {
        std::vector<Strategy> result;
        auto offer = [&](std::vector<Strategy> some) { result.insert(result.end(), some.begin(), some.end()); };
        const bool moves = std::ranges::any_of(
            node.inputs, [&](ValueId value) { return !states_.is_open(value) && !states_.of(value).is_replicated(); });
        if (moves) offer(along_sequence(node));
        for (std::size_t i = 0; i < node.inputs.size(); ++i) offer(following(node, i));
        if (!options_.nodes.empty()) offer(preferred(node));
        offer(wanted_by_parameters(node));
        const bool alone = std::ranges::all_of(
            node.inputs, [&](ValueId value) { return !states_.is_partial(value) || uses_[index(value)] == 1; });
        const std::uint64_t partial = partial_inputs(node);
        if (alone && partial != 0) result.push_back(Strategy::keep_partial(partial));
        result.push_back({});
        if (!alone && partial != 0) result.push_back(Strategy::keep_partial(partial));
        return result;
    }

    std::vector<Strategy> along_sequence(const Node& node) const {
        std::vector<Strategy> result;
        const LoopDims dims = loops_of(graph_, node);
        for (std::size_t i = 0; i < node.inputs.size(); ++i)
            if (along_sequence(node.inputs[i]))
                if (const int loop = sequence_.loop(node, dims, i); loop >= 0)
                    result.push_back(split_evenly(graph_, node, loop, place_.size));
        return result;
    }

    // Gradients of split parameters have to be split in the same way.
    std::vector<Strategy> wanted_by_parameters(const Node& node) const {
        std::vector<Strategy> result;
        std::vector<Sharding> states(node.outputs.size());
        for (std::size_t o = 0; o < node.outputs.size(); ++o)
            for (const Output* output : returned_[index(node.outputs[o])])
                if (output->parameter != ValueId::none) states[o] = states_.of_parameter(output->parameter);
        for (std::size_t o = 0; o < node.outputs.size(); ++o)
            for (Strategy& strategy : strategies_with(graph_, node, Side::outputs, o, states, place_.size))
                result.push_back(std::move(strategy));
        return result;
    }

    std::uint64_t partial_inputs(const Node& node) const {
        std::uint64_t partial = 0;
        for (std::size_t i = 0; i < node.inputs.size() && i < 64; ++i)
            if (states_.is_partial(node.inputs[i]) && states_.of(node.inputs[i]).combine == Combine::sum)
                partial |= std::uint64_t{1} << i;
        return partial;
    }

    Strategy cheapest_of(const Node& node, const std::vector<Strategy>& strategies) const {
        Strategy best; // is always legal, if nothing else is
        double least = never;
        for (const Strategy& strategy : strategies)
            if (const double cost = cost_of(node, strategy); cost < least) best = strategy, least = cost;
        return best;
    }

    // What is sent to bring the inputs, and what will be to make use of the outputs.
    double cost_of(const Node& node, const Strategy& strategy) const {
        const auto placement = placement_of(graph_, node, strategy, place_.size);
        if (!placement) return never;
        double cost = 0;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) cost += states_.cost(node.inputs[i], placement->inputs[i]);
        for (std::size_t o = 0; o < node.outputs.size(); ++o)
            cost += cost_of_result(node.outputs[o], placement->outputs[o]);
        return cost;
    }

    double cost_of_result(ValueId value, const Sharding& state) const {
        const Bytes bytes = graph_.type(value).bytes();
        for (const Output* output : returned_[index(value)]) {
            if (output->parameter != ValueId::none) {
                const Sharding owned = states_.of_parameter(output->parameter);
                if (owned.is_split() && !states_.is_sharded(output->parameter)) return owned == state ? 0 : never;
                if (owned.is_split()) return communication(state, owned, bytes, place_.size);
                return state.is_partial() ? 0 : communication(state, owned, bytes, place_.size); // reduced once a step
            }
            if (const auto input = input_across(graph_, *output, stage_input_gradient, stage_input))
                return communication(state, result_.inputs[*input], bytes, place_.size);
        }
        if (!state.is_partial()) return 0;
        return communication(state, along_sequence(value).value_or(Sharding{}), bytes, place_.size);
    }

    const Graph& graph_;
    const AxisPlace& place_;
    const ShardOptions& options_;
    std::vector<std::optional<PreferredState>> preferred_;
    ValueStates states_;
    SequenceDims sequence_;
    Assignment result_;
    std::vector<int> uses_;                            // per value, in its own pass
    std::vector<std::vector<const Output*>> returned_; // per value: the outputs it is
};

} // namespace

Assignment default_assignment(const Graph& graph, const AxisPlace& place, const ShardOptions& options) {
    if (place.size > 1) return Choice(graph, place, options).run();
    Assignment alone;
    alone.nodes.resize(graph.nodes().size());
    alone.inputs.resize(graph.inputs().size());
    alone.parameters.resize(graph.parameters().size());
    alone.outputs.resize(graph.outputs().size());
    return alone;
}

} // namespace tutti::sharding

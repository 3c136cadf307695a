#include "planner/strategies/menu.h"

#include "base/error.h"
#include "graph/loops.h"
#include "sharding/operator_strategies.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tutti::planner::strategies {
namespace {

// A node by itself, on operands of which the axes before have taken their parts.
class Alone {
  public:
    Alone(const Graph& graph, NodeId id) : node_(graph.node(id)), types_(graph.input_types(node_)) {
        attributes_ = node_.attributes;
        whole_ = &graph;
        result_.split = {};
        result_.inputs.resize(node_.inputs.size());
        result_.outputs.resize(node_.outputs.size());
        build();
    }

    const Graph& graph() const { return *one_; }
    const Node& node() const { return one_->node(id_); }
    NodeId id() const { return id_; }

    // Everything that may be split along an axis of this size; the first leaves it whole.
    std::vector<sharding::Strategy> strategies(int size) const {
        if (!has_loops(*node_.op) || !single_) return {{}};
        return sharding::strategies_of(*one_, id_, size);
    }

    std::optional<sharding::OperandStates> placement(const sharding::Strategy& strategy, int size) const {
        return sharding::placement_of(*one_, node(), strategy, size);
    }

    std::string word(const sharding::Strategy& strategy) const {
        if (strategy.loop < 0)
            return std::string(strategy.partial != 0 ? sharding::on_partial_sums : sharding::on_every_rank);
        return loops()[static_cast<std::size_t>(strategy.loop)].name;
    }

    std::vector<Loop> loops() const {
        return resolve_loops(*node_.op, one_->input_types(node()), one_->output_types(node()), attributes_).loops;
    }

    // The statistics of parts of the classes are joined along one axis only.
    bool has_joined(const sharding::Strategy& strategy) const {
        if (!node_.op->loss || word(strategy) != node_.op->loss->classes) return false;
        return std::ranges::find(result_.split, node_.op->loss->classes) != result_.split.end();
    }

    // One rank adds the bias, so what ranks compute differs from then on: no further axis may be shared after that.
    bool leaves_a_bias(const sharding::Strategy& strategy) const {
        const auto& product = node_.op->product;
        return product && node_.inputs.size() > product->bias && word(strategy) == product->in_features;
    }

    // Goes on with what a rank has after it.
    void split(const sharding::Strategy& strategy, const sharding::OperandStates& placement) {
        result_.split.push_back(word(strategy));
        for (std::size_t i = 0; i < types_.size(); ++i) {
            result_.inputs[i].push_back(state_of(placement.inputs[i]));
            types_[i].shape = sharding::local_shape(types_[i].shape, placement.inputs[i], 0);
        }
        for (std::size_t o = 0; o < placement.outputs.size(); ++o)
            result_.outputs[o].push_back(state_of(placement.outputs[o]));
        if (strategy.loop >= 0) attributes_ = slowest_part(strategy);
        build();
    }

    MenuItem item() const {
        MenuItem item = result_;
        item.local_inputs = types_;
        item.local_outputs = one_->output_types(node());
        item.attributes = attributes_;
        return item;
    }

  private:
    // Parts of the first rank's size; of these the one with the most work, as later queries of causal attention see
    // more keys than earlier ones.
    Attributes slowest_part(const sharding::Strategy& strategy) const {
        Attributes first = sharding::local_attributes(*one_, node(), strategy, 0);
        const Operator& op = *node_.op;
        if (!op.part || op.pieces || !op.cost) return first;
        const Loop loop = loops()[static_cast<std::size_t>(strategy.loop)];
        const std::int64_t size = count(strategy.parts[0]);
        Attributes last = op.part(one_->input_types(node()), attributes_, loop.name, loop.size - size, size);
        if (last == first) return first;
        auto flops = [&](const Attributes& part) { return op.cost(types_, op.infer(types_, part), part).flops.count; };
        return flops(last) > flops(first) ? last : first;
    }

    void build() {
        one_.emplace(whole_->operators());
        std::vector<ValueId> inputs;
        for (std::size_t i = 0; i < types_.size(); ++i)
            inputs.push_back(one_->add_input("input" + std::to_string(i), types_[i]));
        id_ = one_->add_node(node_.op->name, inputs, attributes_, node_.source);
        single_ = one_->nodes().size() == 1;
    }

    const Node& node_;
    const Graph* whole_ = nullptr;
    std::vector<TensorType> types_;
    Attributes attributes_;
    MenuItem result_;
    std::optional<Graph> one_;
    NodeId id_ = NodeId::none;
    bool single_ = true; // no copy had to be made for it
};

void extend(const Alone& sofar, std::span<const int> axes, std::vector<MenuItem>& all) {
    if (axes.empty()) {
        all.push_back(sofar.item());
        return;
    }
    std::vector<sharding::Strategy> strategies = sofar.strategies(axes[0]);
    if (sofar.node().op->linear == Linear::joint && sofar.node().inputs.size() < 64)
        strategies.push_back(sharding::Strategy::keep_partial((std::uint64_t{1} << sofar.node().inputs.size()) - 1));
    for (const sharding::Strategy& strategy : strategies) {
        const auto placement = sofar.placement(strategy, axes[0]);
        if (!placement || sofar.has_joined(strategy)) continue;
        if (axes.size() > 1 && sofar.leaves_a_bias(strategy)) continue;
        Alone next = sofar;
        next.split(strategy, *placement);
        extend(next, axes.subspan(1), all);
    }
}

} // namespace

bool has_loops(const Operator& op) { return static_cast<bool>(op.loops); }

AxisState state_of(const sharding::Sharding& sharding) {
    return sharding.is_split() ? sharding.dim : sharding.is_partial() ? partial : replicated;
}

std::string to_string(const States& states, std::span<const int> axes) {
    std::vector<std::string> words;
    for (std::size_t a = 0; a < states.size(); ++a)
        words.push_back(states[a] == replicated ? std::string("whole")
                        : states[a] == partial  ? fmt::format("partial over {}", axes[a])
                                                : fmt::format("split {} over {}", states[a], axes[a]));
    return fmt::format("{}", fmt::join(words, ", "));
}

TensorType local_type(const TensorType& whole, const States& states, std::span<const int> axes) {
    TensorType type = whole;
    for (std::size_t a = 0; a < states.size(); ++a)
        if (states[a] >= 0) type.shape[states[a]] = (type.shape[states[a]] + axes[a] - 1) / axes[a];
    return type;
}

std::int64_t local_bytes(const TensorType& whole, const States& states, std::span<const int> axes) {
    return local_type(whole, states, axes).bytes().count;
}

std::vector<MenuItem> menu_of(const Graph& graph, NodeId node, std::span<const int> axes) {
    std::vector<MenuItem> all;
    extend(Alone(graph, node), axes, all);
    return all;
}

std::optional<MenuItem> following(const Graph& graph, NodeId node, std::size_t input, const States& states,
                                  std::span<const int> axes) {
    Alone alone(graph, node);
    for (std::size_t a = 0; a < axes.size(); ++a) {
        std::vector<sharding::Strategy> strategies = {{}};
        if (states[a] == partial) strategies = {sharding::Strategy::keep_partial(std::uint64_t{1} << input)};
        if (states[a] >= 0) strategies = alone.strategies(axes[a]);
        bool found = false;
        for (const sharding::Strategy& strategy : strategies) {
            const auto placement = alone.placement(strategy, axes[a]);
            if (!placement || state_of(placement->inputs[input]) != states[a]) continue;
            alone.split(strategy, *placement);
            found = true;
            break;
        }
        if (!found) return std::nullopt;
    }
    return alone.item();
}

MenuItem by_names(const Graph& graph, NodeId node, std::span<const std::string> split, std::span<const int> axes) {
    Alone alone(graph, node);
    for (std::size_t a = 0; a < axes.size(); ++a) {
        sharding::Strategy chosen;
        for (const sharding::Strategy& strategy : alone.strategies(axes[a]))
            if (strategy.loop >= 0 && alone.word(strategy) == split[a]) chosen = strategy;
        alone.split(chosen, *alone.placement(chosen, axes[a]));
    }
    return alone.item();
}

} // namespace tutti::planner::strategies

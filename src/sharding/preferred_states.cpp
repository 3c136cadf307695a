#include "sharding/preferred_states.h"

#include "base/counted.h"
#include "base/error.h"
#include "graph/loops.h"
#include "sharding/operator_strategies.h"
#include "sharding/strategy.h"

#include <algorithm>

namespace tutti::sharding {
namespace {

// Replicated where none is preferred.
std::vector<Sharding> states_of_outputs(const Node& node, std::span<const std::optional<PreferredState>> preferred) {
    std::vector<Sharding> states;
    for (ValueId output : node.outputs)
        states.push_back(preferred[index(output)] ? preferred[index(output)]->state : Sharding{});
    return states;
}

class PreferredStates {
  public:
    PreferredStates(const Graph& graph, const AxisPlace& place, std::span<const NodeRequest> asked)
        : graph_(graph), place_(place), asked_(asked), preferred_(graph.values().size()) {}

    std::vector<std::optional<PreferredState>> run() {
        for (std::size_t i = graph_.nodes().size(); i-- > 0;)
            if (graph_.nodes()[i].phase == Phase::forward) {
                if (!asked_.empty() && asked_[i].split != follows)
                    visit_asked(graph_.nodes()[i], asked_[i].split);
                else
                    visit(graph_.nodes()[i]);
            }
        return std::move(preferred_);
    }

  private:
    void visit(const Node& node) {
        if (!node.op->heads.empty())
            pass_on(node, split_heads(graph_, node, place_), true);
        else if (const auto& product = node.op->product; product && has_matrix(graph_, node))
            pass_on(node, split_evenly(graph_, node, loop_named(graph_, node, product->in_features), place_.size),
                    false);
        else if (!has_matrix(graph_, node))
            pass_through(node);
    }

    void visit_asked(const Node& node, std::string_view split) {
        const int loop = loop_named(graph_, node, split);
        if (loop < 0) return;
        const bool strong = !node.op->heads.empty();
        for (const Strategy& strategy : strategies_with_preferences(graph_, node, preferred_, place_.size))
            if (strategy.loop == loop) return pass_on(node, strategy, strong);
        for (const Strategy& strategy : strategies_of(graph_, graph_.value(node.outputs[0]).producer, place_.size))
            if (strategy.loop == loop) return pass_on(node, strategy, strong);
    }

    void pass_on(const Node& node, const Strategy& strategy, bool strong) {
        const auto placement = placement_of(graph_, node, strategy, place_.size);
        if (!placement) return;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            if (!placement->inputs[i].is_split() || graph_.parameter_of(node.inputs[i]) != nullptr) continue;
            std::optional<PreferredState>& preferred = preferred_[index(node.inputs[i])];
            if (!preferred || (strong && !preferred->strong)) preferred = PreferredState{placement->inputs[i], strong};
        }
    }

    void pass_through(const Node& node) {
        const std::vector<Sharding> states = states_of_outputs(node, preferred_);
        for (std::size_t i = 0; i < states.size(); ++i) {
            const auto found = strategies_with(graph_, node, Side::outputs, i, states, place_.size);
            if (!found.empty()) return pass_on(node, found[0], preferred_[index(node.outputs[i])]->strong);
        }
    }

    const Graph& graph_;
    const AxisPlace& place_;
    std::span<const NodeRequest> asked_;
    std::vector<std::optional<PreferredState>> preferred_;
};

} // namespace

int loop_named(const Graph& graph, const Node& node, std::string_view name) {
    const std::vector<Loop> loops = loops_of(graph, node).loops;
    const auto found = std::ranges::find(loops, name, &Loop::name);
    return found == loops.end() ? -1 : static_cast<int>(found - loops.begin());
}

Strategy split_evenly(const Graph& graph, const Node& node, int loop, int size) {
    const LoopDims dims = loops_of(graph, node);
    return Strategy::split(loop, even_parts(dims.loops[static_cast<std::size_t>(loop)].size, 1, size));
}

Strategy split_heads(const Graph& graph, const Node& node, const AxisPlace& place) {
    const int loop = loop_named(graph, node, node.op->heads);
    const std::int64_t heads = loops_of(graph, node).loops[static_cast<std::size_t>(loop)].size;
    if (heads < place.size)
        fail("{} has {}, which cannot be sharded over {} ranks; the {} axis can have at most {}", node.source,
             counted(heads, "key head"), place.size, place.axis, heads);
    return split_evenly(graph, node, loop, place.size);
}

bool has_matrix(const Graph& graph, const Node& node) {
    const Operator& op = *node.op;
    if (!op.product && !op.lookup) return false;
    return graph.parameter_of(node.inputs[op.product ? op.product->weight : op.lookup->table]) != nullptr;
}

std::vector<std::optional<PreferredState>> find_preferred_states(const Graph& graph, const AxisPlace& place,
                                                                 std::span<const NodeRequest> asked) {
    return PreferredStates(graph, place, asked).run();
}

std::vector<Strategy> strategies_with_preferences(const Graph& graph, const Node& node,
                                                  std::span<const std::optional<PreferredState>> preferred, int size) {
    const std::vector<Sharding> states = states_of_outputs(node, preferred);
    std::vector<Strategy> result;
    for (std::size_t i = 0; i < states.size(); ++i)
        for (Strategy& strategy : strategies_with(graph, node, Side::outputs, i, states, size))
            result.push_back(std::move(strategy));
    return result;
}

} // namespace tutti::sharding

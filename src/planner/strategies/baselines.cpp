#include "planner/strategies/baselines.h"

#include "planner/strategies/eliminate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace tutti::planner::strategies {
namespace {

using Option = StrategyModel::Option;
using Fits = std::function<bool(const StrategyModel::Vertex&, const Option&)>;

bool all_are(const std::vector<std::string>& words, std::initializer_list<std::string_view> allowed) {
    return std::ranges::all_of(
        words, [&](const std::string& word) { return std::ranges::find(allowed, word) != allowed.end(); });
}

bool all_are(const States& states, AxisState wanted) {
    return std::ranges::all_of(states, [&](AxisState state) { return state == wanted; });
}

bool holds(const Option& option) { return std::ranges::find(option.held, true) != option.held.end(); }

Baseline restricted_to(const StrategyModel& model, std::string name, const std::string& reason, const Fits& fits) {
    Baseline baseline{std::move(name), {}, {}};
    std::vector<std::vector<int>> kept(model.vertices().size());
    for (std::size_t v = 0; v < kept.size(); ++v) {
        const StrategyModel::Vertex& vertex = model.vertices()[v];
        for (std::size_t o = 0; o < vertex.options.size(); ++o)
            if (fits(vertex, vertex.options[o])) kept[v].push_back(static_cast<int>(o));
        if (kept[v].empty()) {
            baseline.reason = fmt::format("{}: {}", model.problem().nodes[v].name, reason);
            return baseline;
        }
    }
    Reduced some{restricted(model.problem(), kept), kept};
    some.problem.cap.reset();
    const Elimination found = eliminate(some.problem, Goal::Least::time);
    if (found.front.empty())
        baseline.reason = found.solved ? reason : found.reason;
    else
        baseline.solution = some.restored(model.problem(), found.front[0]);
    return baseline;
}

// What the two kinds of tensor parallelism have in common: nothing where the operator is another.
std::optional<bool> fits_tensor(const StrategyModel& model, const StrategyModel::Vertex& vertex, const Option& option) {
    const Graph& graph = model.graph();
    const Node& node = graph.node(model.structure().groups[static_cast<std::size_t>(vertex.group)].members[0].node);
    const Operator& op = *node.op;
    if (holds(option)) return false;
    if (op.product && graph.parameter_of(node.inputs[op.product->weight]) != nullptr)
        return all_are(option.item.split, {op.product->out_features}) ||
               all_are(option.item.split, {op.product->in_features});
    if (!op.heads.empty()) return all_are(option.item.split, {op.heads});
    if (op.loss) return all_are(option.item.split, {op.loss->classes});
    if (op.lookup) {
        const bool tokens = graph.value(node.inputs[op.lookup->indices]).producer == NodeId::none;
        return all_are(option.item.split, {tokens ? op.lookup->rows : "none"});
    }
    // Within a feed-forward network: as wide as its matmuls are split.
    const States& states = option.item.outputs[0];
    const AxisState last = graph.shape(node.outputs[0]).rank() - 1;
    const bool adds = op.arithmetic == Arithmetic::sum;
    if (!adds && op.drops.empty() && node.inputs.size() <= 2 && all_are(states, last)) return true;
    return std::nullopt;
}

} // namespace

Baseline tensor_parallelism(const StrategyModel& model) {
    return restricted_to(model, "tensor parallelism", "it cannot be split by columns, rows or heads",
                         [&](const StrategyModel::Vertex& vertex, const Option& option) {
                             if (vertex.flow >= 0) return all_are(option.states, replicated);
                             if (const auto fits = fits_tensor(model, vertex, option)) return *fits;
                             return all_are(option.item.split, {sharding::on_every_rank});
                         });
}

Baseline sequence_parallelism(const StrategyModel& model) {
    return restricted_to(model, "tensor and sequence parallelism", "it cannot be split along the sequence",
                         [&](const StrategyModel::Vertex& vertex, const Option& option) {
                             if (option.keep) return false;
                             if (vertex.flow >= 0)
                                 return all_are(option.states, 1) || all_are(option.states, replicated);
                             if (const auto fits = fits_tensor(model, vertex, option)) return *fits;
                             const Node& node = model.graph().node(
                                 model.structure().groups[static_cast<std::size_t>(vertex.group)].members[0].node);
                             if (model.graph().shape(node.outputs[0]).rank() < 3)
                                 return all_are(option.item.split, {sharding::on_every_rank});
                             return all_are(option.item.outputs[0], 1);
                         });
}

Baseline zero3(const StrategyModel& model) {
    return restricted_to(model, "ZeRO 3", "there are fewer samples in a micro-batch than ranks",
                         [&](const StrategyModel::Vertex& vertex, const Option& option) {
                             if (vertex.flow >= 0) return all_are(option.states, 0);
                             const Graph& graph = model.graph();
                             const Node& node = graph.node(
                                 model.structure().groups[static_cast<std::size_t>(vertex.group)].members[0].node);
                             for (std::size_t i = 0; i < node.inputs.size(); ++i)
                                 if (graph.parameter_of(node.inputs[i]) != nullptr)
                                     for (std::size_t a = 0; a < option.held.size(); ++a)
                                         if (!option.held[a] || option.item.inputs[i][a] != replicated) return false;
                             const bool samples = all_are(option.item.split, {"r0", "l0", "b"});
                             const bool positions = graph.shape(node.outputs[0]).rank() < 3 && !node.op->loss;
                             return samples || (positions && all_are(option.item.split, {sharding::on_every_rank}));
                         });
}

std::vector<Baseline> baselines(const StrategyModel& model) {
    return {tensor_parallelism(model), sequence_parallelism(model), zero3(model)};
}

} // namespace tutti::planner::strategies

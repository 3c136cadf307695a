#include "planner/strategies/model.h"

#include "base/error.h"
#include "planner/strategies/model_builder.h"

#include <algorithm>
#include <map>
#include <set>

namespace tutti::planner::strategies {

StrategyModel::StrategyModel(const Graph& step, const costs::CostModel& costs, const ModelOptions& options)
    : graph_(step), options_(options), structure_(structure_of(step)) {
    ModelBuilder(*this, costs).run();
}

States StrategyModel::given(const Arrow& arrow, const Solution& solution) const {
    const Vertex& vertex = vertices_[at(arrow.from)];
    const Option& option = vertex.options[at(solution.options[at(arrow.from)])];
    const Flow& flow = structure_.flows[at(arrow.flow)];
    return vertex.flow >= 0 ? option.states : option.member(at(flow.member)).outputs[at(flow.output)];
}

States StrategyModel::taken(const Arrow& arrow, const Solution& solution) const {
    const Vertex& vertex = vertices_[at(arrow.to)];
    const Option& option = vertex.options[at(solution.options[at(arrow.to)])];
    return vertex.flow >= 0 ? option.states
                            : option.item.inputs[structure_.flows[at(arrow.flow)].uses[arrow.use].input];
}

Outcome StrategyModel::outcome(const Solution& solution) const {
    Outcome outcome;
    outcome.redundancy = {solution.redundancy - solution.transient};
    outcome.transient = {
        static_cast<std::int64_t>(static_cast<double>(solution.transient) / options_.transient_weight)};
    outcome.time = {static_cast<double>(solution.time) * 1e-9};
    Amount computing = 0;
    for (std::size_t v = 0; v < vertices_.size(); ++v) {
        const Option& option = vertices_[v].options[at(solution.options[v])];
        outcome.states += problem_.nodes[v].times * Bytes{option.states_bytes};
        outcome.saved += problem_.nodes[v].times * Bytes{option.saved_bytes};
        computing += problem_.nodes[v].times * option.computing;
    }
    outcome.computing = {static_cast<double>(computing) * 1e-9};
    for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
        const ChoiceEdge& edge = problem_.edges[e];
        const std::size_t cell = at(solution.options[at(edge.from)]) * vertices_[at(edge.to)].options.size() +
                                 at(solution.options[at(edge.to)]);
        const Bytes bytes = edge.times * Bytes{edge_bytes_[e][cell]};
        const bool tie = std::ranges::find(tie_edges_, static_cast<int>(e)) != tie_edges_.end();
        (tie ? outcome.states : outcome.saved) += bytes;
    }
    return outcome;
}

sharding::OperatorStrategies StrategyModel::operator_strategies(const Solution& solution) const {
    sharding::OperatorStrategies strategies;
    strategies.axes = options_.axes;
    const std::vector<sharding::OperatorName> names = sharding::operator_names(graph_);
    // A pattern may stand for all only where all have the same choice.
    std::map<sharding::OperatorName, std::set<int>> users;
    for (std::size_t g = 0; g < structure_.groups.size(); ++g)
        for (const std::vector<NodeId>& nodes : structure_.groups[g].instances)
            for (NodeId node : nodes) {
                const sharding::OperatorName& name = names[index(node)];
                users[{sharding::layer_pattern(name.source), name.op, name.ordinal}].insert(static_cast<int>(g));
            }
    std::vector<bool> keeps(structure_.groups.size(), false), at_once(structure_.groups.size(), false);
    for (std::size_t v = 0; v < vertices_.size(); ++v) {
        const Option& option = vertices_[v].options[at(solution.options[v])];
        if (vertices_[v].group >= 0) {
            keeps[at(vertices_[v].group)] = keeps[at(vertices_[v].group)] || option.keep;
            continue;
        }
        for (const Flow::Use& use : structure_.flows[at(vertices_[v].flow)].uses) {
            keeps[at(use.group)] = keeps[at(use.group)] || option.keep;
            if (std::ranges::find(option.sums_first, true) == option.sums_first.end()) at_once[at(use.group)] = true;
        }
    }
    std::set<std::string> tensors;
    for (std::size_t v = 0; v < vertices_.size(); ++v) {
        if (vertices_[v].group < 0) continue;
        const Group& group = structure_.groups[at(vertices_[v].group)];
        const Option& option = vertices_[v].options[at(solution.options[v])];
        std::set<sharding::OperatorName> told;
        for (const std::vector<NodeId>& nodes : group.instances)
            for (std::size_t m = 0; m < nodes.size(); ++m) {
                sharding::OperatorName name = names[index(nodes[m])];
                const sharding::OperatorName pattern{sharding::layer_pattern(name.source), name.op, name.ordinal};
                if (users[pattern].size() == 1) name = pattern;
                if (!told.insert(name).second) continue;
                const bool first = m == 0;
                strategies.operators.push_back({name, option.member(m).split, first && keeps[at(vertices_[v].group)],
                                                first && at_once[at(vertices_[v].group)]});
            }
        for (const std::vector<NodeId>& nodes : group.instances) {
            const Node& node = graph_.node(nodes[0]);
            for (std::size_t i = 0; i < node.inputs.size(); ++i) {
                const Parameter* parameter = graph_.parameter_of(node.inputs[i]);
                if (parameter == nullptr) continue;
                std::vector<bool> held = option.held;
                for (std::size_t a = 0; a < held.size(); ++a)
                    held[a] = held[a] && option.item.inputs[i][a] == replicated;
                if (std::ranges::find(held, true) == held.end()) continue;
                for (std::int32_t stored : parameter->run()) {
                    const std::string name =
                        sharding::layer_pattern(graph_.stored()[static_cast<std::size_t>(stored)].name);
                    if (tensors.insert(name).second) strategies.tensors.push_back({name, held});
                }
            }
        }
    }
    return strategies;
}

} // namespace tutti::planner::strategies

#include "planner/strategies/description.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tutti::planner::strategies {
namespace {

constexpr std::string_view slice = "slice"; // no communication

// The collectives along all axes, in the order of axes, each name once.
std::string resharding_text(const States& given, const States& taken) {
    std::vector<std::string> words;
    for (std::size_t a = 0; a < given.size(); ++a) {
        if (given[a] == taken[a]) continue;
        std::string word = given[a] == replicated                          ? std::string(slice)
                           : given[a] == partial && taken[a] == replicated ? "all_reduce"
                           : given[a] == partial                           ? "reduce_scatter"
                           : taken[a] == replicated                        ? "all_gather"
                                                                           : "all_to_all";
        if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
    }
    return fmt::format("{}", fmt::join(words, ", "));
}

AxisState kind_of(const States& states) {
    for (std::size_t a = states.size(); a-- > 0;)
        if (states[a] != replicated) return states[a];
    return replicated;
}

} // namespace

std::string shape_text(const Shape& shape, const States& states, std::span<const int> axes) {
    std::vector<std::string> dims;
    int sums = 1;
    for (int d = 0; d < shape.rank(); ++d) {
        std::string text = fmt::format("{}", shape[d]);
        for (std::size_t a = 0; a < states.size(); ++a)
            if (states[a] == d) text += fmt::format("/{}", axes[a]);
        dims.push_back(std::move(text));
    }
    for (std::size_t a = 0; a < states.size(); ++a)
        if (states[a] == partial) sums *= axes[a];
    return fmt::format("{}{}", sums > 1 ? fmt::format("sum of {}: ", sums) : "", fmt::join(dims, " x "));
}

std::vector<OperatorText> describe_operators(const StrategyModel& model, const Solution& solution) {
    const Graph& graph = model.graph();
    std::vector<OperatorText> all;
    for (std::size_t v = 0; v < model.vertices().size(); ++v) {
        const StrategyModel::Vertex& vertex = model.vertices()[v];
        if (vertex.group < 0) continue;
        const Group& group = model.structure().groups[at(vertex.group)];
        const StrategyModel::Option& option = vertex.options[at(solution.options[v])];
        const Node& node = graph.node(group.members[0].node);
        OperatorText text;
        text.group = vertex.group;
        text.name = group.name;
        text.op = node.op->name;
        text.times = group.times();
        text.split = fmt::format("{}", fmt::join(option.item.split, " "));
        text.gives = shape_text(graph.shape(node.outputs[0]), option.item.outputs[0], model.options().axes);
        std::int64_t largest = 0;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            if (graph.parameter_of(node.inputs[i]) == nullptr) continue;
            const Shape& shape = graph.shape(node.inputs[i]);
            if (shape.elements() <= largest) continue;
            largest = shape.elements();
            text.weight = shape_text(shape, option.item.inputs[i], model.options().axes);
            text.held = false;
            for (std::size_t a = 0; a < option.held.size(); ++a)
                text.held = text.held || (option.held[a] && option.item.inputs[i][a] == replicated);
        }
        text.saved = Bytes{option.saved_bytes / model.options().in_flight};
        for (const StrategyModel::Arrow& arrow : model.arrows()) {
            const Flow& flow = model.structure().flows[at(arrow.flow)];
            if (arrow.use >= flow.uses.size() || flow.uses[arrow.use].group != vertex.group) continue;
            if (!flow.uses[arrow.use].saved) continue;
            const StrategyModel::Vertex& from = model.vertices()[at(arrow.from)];
            const StrategyModel::Option& handed = from.options[at(solution.options[at(arrow.from)])];
            bool gathered = gathers(model.given(arrow, solution), model.taken(arrow, solution));
            bool keep = option.keep;
            if (from.flow >= 0) { // gathered on the way there
                for (const StrategyModel::Arrow& into : model.arrows())
                    if (into.to == arrow.from)
                        gathered = gathered || gathers(model.given(into, solution), model.taken(into, solution));
                keep = handed.keep;
            }
            if (gathered) text.gathered = keep ? "kept" : "gathered again";
        }
        all.push_back(std::move(text));
    }
    return all;
}

std::vector<FlowText> describe_flows(const StrategyModel& model, const Solution& solution) {
    std::vector<FlowText> all;
    for (const StrategyModel::Arrow& arrow : model.arrows()) {
        const Flow& flow = model.structure().flows[at(arrow.flow)];
        if (arrow.use >= flow.uses.size()) continue; // into the value's own vertex: seen from its readers
        const Flow::Use& use = flow.uses[arrow.use];
        States given = model.given(arrow, solution);
        const States taken = model.taken(arrow, solution);
        FlowText text;
        text.from = flow.group;
        text.to = use.group;
        text.next_layer = use.group <= flow.group;
        const Shape& shape = model.graph().shape(flow.value);
        std::string on_the_way;
        if (model.vertices()[at(arrow.from)].flow >= 0)
            for (const StrategyModel::Arrow& into : model.arrows())
                if (into.to == arrow.from) {
                    const States first = model.given(into, solution);
                    on_the_way = resharding_text(first, given);
                    given = first;
                }
        text.given = shape_text(shape, given, model.options().axes);
        text.taken = shape_text(shape, taken, model.options().axes);
        text.resharding = on_the_way.empty() || on_the_way == slice ? resharding_text(given, taken) : on_the_way;
        text.kind = kind_of(taken);
        all.push_back(std::move(text));
    }
    return all;
}

} // namespace tutti::planner::strategies

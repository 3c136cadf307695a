#include "planner/strategies/model_builder.h"

#include "base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace tutti::planner::strategies {
namespace {

bool is_view(const Node& node) { return static_cast<bool>(node.op->view); }

} // namespace

ModelBuilder::ModelBuilder(StrategyModel& model, const costs::CostModel& costs)
    : model_(model), graph_(model.graph_), options_(model.options_), resharding_(costs, model.options_.axes) {}

void ModelBuilder::run() {
    const Structure& structure = model_.structure_;
    for (std::size_t g = 0; g < structure.groups.size(); ++g) add_group(static_cast<int>(g));
    check_axes();
    flow_vertex_.assign(structure.flows.size(), -1);
    for (std::size_t f = 0; f < structure.flows.size(); ++f)
        if (has_own_vertex(structure.flows[f])) add_flow_vertex(static_cast<int>(f));
    for (std::size_t f = 0; f < structure.flows.size(); ++f) {
        if (flow_vertex_[f] >= 0)
            add_handed_on(static_cast<int>(f));
        else
            add_direct(static_cast<int>(f));
    }
    add_ties();
    if (options_.memory_cap) add_cap(*options_.memory_cap);
    check(model_.problem_);
}

bool ModelBuilder::has_own_vertex(const Flow& flow) const {
    return flow.uses.size() > 1 || flow.uses[0].group == flow.group;
}

bool ModelBuilder::is_tied(std::int32_t stored) const {
    return std::ranges::find(model_.structure_.ties, stored, &Tie::stored) != model_.structure_.ties.end();
}

Amount ModelBuilder::weighted(Amount bytes) const {
    return static_cast<Amount>(static_cast<double>(bytes) * options_.transient_weight);
}

// ---- Groups

void ModelBuilder::add_group(int g) {
    const Group& group = model_.structure_.groups[at(g)];
    StrategyModel::Vertex vertex{g, -1, {}};
    ChoiceNode node{group.name, group.times(), {}};
    for (const MenuItem& item : menu_of(graph_, group.members[0].node, options_.axes)) add_options(g, item, vertex);
    TUTTI_CHECK(!vertex.options.empty(), "nothing can be done with {}", group.name);
    for (Option& option : vertex.options) node.options.push_back(cost_of(group, option));
    group_vertex_.push_back(static_cast<int>(model_.vertices_.size()));
    model_.vertices_.push_back(std::move(vertex));
    model_.problem_.nodes.push_back(std::move(node));
}

// What the operator does, times which axes its whole weights are sharded along, times whether gathered inputs are kept.
void ModelBuilder::add_options(int g, const MenuItem& item, StrategyModel::Vertex& vertex) {
    const Group& group = model_.structure_.groups[at(g)];
    Option option;
    option.item = item;
    if (!follow_all(group, option)) return;
    const Node& node = graph_.node(group.members[0].node);
    unsigned whole = 0; // axes along which some weight is not split
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (graph_.parameter_of(node.inputs[i]) != nullptr)
            for (std::size_t a = 0; a < options_.axes.size(); ++a)
                if (item.inputs[i][a] == replicated && options_.axes[a] > 1) whole |= 1U << a;
    const bool gathers_inputs = std::ranges::any_of(model_.structure_.flows, [&](const Flow& flow) {
        return !has_own_vertex(flow) && flow.uses[0].group == g && flow.uses[0].saved;
    });
    for (unsigned held = 0; held < 1U << options_.axes.size(); ++held) {
        if ((held & ~whole) != 0) continue;
        option.held.assign(options_.axes.size(), false);
        for (std::size_t a = 0; a < options_.axes.size(); ++a) option.held[a] = (held >> a & 1) != 0;
        for (const bool keep : {false, true}) {
            if (keep && !gathers_inputs) continue;
            option.keep = keep;
            vertex.options.push_back(option);
        }
    }
}

bool ModelBuilder::follow_all(const Group& group, Option& option) const {
    for (std::size_t m = 1; m < group.members.size(); ++m) {
        const Group::Member& member = group.members[m];
        const States& states = option.member(at(member.follows)).outputs[at(member.output)];
        auto item = following(graph_, member.node, member.input, states, options_.axes);
        if (!item) return false;
        option.followers.push_back(std::move(*item));
    }
    return true;
}

OptionCost ModelBuilder::cost_of(const Group& group, Option& option) const {
    OptionCost cost = weights_of(group, option);
    for (std::size_t m = 0; m < group.members.size(); ++m) {
        const Node& node = graph_.node(group.members[m].node);
        for (std::size_t o = 0; o < node.outputs.size(); ++o) {
            if (!group.members[m].saved[o]) continue;
            const TensorType& type = graph_.type(node.outputs[o]);
            const Amount bytes = local_bytes(type, option.member(m).outputs[o], options_.axes);
            option.saved_bytes += options_.in_flight * bytes;
            cost.redundancy += options_.in_flight * std::max<Amount>(0, bytes - share(type.bytes().count));
        }
    }
    option.computing = computing_of(group, option);
    cost.time += option.computing;
    cost.transient = weighted(transient_of(group, option));
    return cost;
}

std::int64_t ModelBuilder::held_elements(const TensorType& type, const States& states,
                                         const std::vector<bool>& held) const {
    std::int64_t elements = local_type(type, states, options_.axes).elements();
    for (std::size_t a = 0; a < held.size(); ++a)
        if (held[a] && states[a] == replicated) elements = (elements + options_.axes[a] - 1) / options_.axes[a];
    return elements;
}

// Weights, gradients and optimizer states; gathering weights, and summing gradients over the ranks.
OptionCost ModelBuilder::weights_of(const Group& group, Option& option) const {
    OptionCost cost;
    const Node& node = graph_.node(group.members[0].node);
    const std::int64_t each = options_.precision.bytes_per_parameter();
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const Parameter* parameter = graph_.parameter_of(node.inputs[i]);
        if (parameter == nullptr) continue;
        const TensorType& type = graph_.type(node.inputs[i]);
        const States& states = option.item.inputs[i];
        if (!is_tied(parameter->stored)) {
            const Amount bytes = each * held_elements(type, states, option.held);
            option.states_bytes += bytes;
            cost.redundancy += std::max<Amount>(0, bytes - share(each * type.elements()));
        }
        const bool read_again = std::ranges::any_of(group.members[0].backward, [&](NodeId backward) {
            const std::vector<ValueId>& inputs = graph_.node(backward).inputs;
            return std::ranges::find(inputs, node.inputs[i]) != inputs.end();
        });
        for (std::size_t a = 0; a < options_.axes.size(); ++a) {
            if (states[a] != replicated) continue;
            const std::int64_t elements = local_type(type, states, options_.axes).elements();
            const std::int64_t weight = elements * size_of(options_.precision.compute),
                               gradient = elements * size_of(options_.precision.gradients);
            const bool sums = gradient_given(states, option.item.split)[a] == partial;
            if (option.held[a])
                cost.time += (read_again ? 2 : 1) * resharding_.seconds(costs::Collective::all_gather, weight, a);
            if (sums && option.held[a])
                cost.time += resharding_.seconds(costs::Collective::reduce_scatter, gradient, a);
            if (sums && !option.held[a])
                cost.time += resharding_.seconds(costs::Collective::all_reduce, gradient, a) / options_.micro_batches;
        }
    }
    return cost;
}

Amount ModelBuilder::computing_of(const Group& group, const Option& option) const {
    const costs::CostModel& costs = resharding_.costs();
    double seconds = 0;
    auto add = [&](const Node& node, const MenuItem& item) {
        if (!is_view(node))
            seconds += costs.kernel_seconds(node.op->name, item.local_inputs, item.local_outputs, item.attributes, 0);
    };
    for (std::size_t m = 0; m < group.members.size(); ++m) {
        add(graph_.node(group.members[m].node), option.member(m));
        for (NodeId backward : group.members[m].backward)
            if (!is_view(graph_.node(backward)))
                add(graph_.node(backward), by_names(graph_, backward, option.member(m).split, options_.axes));
    }
    return nanoseconds(seconds);
}

// What is there only while a kernel runs: results that are not kept, passing gradients, gathered weights and
// what is summed of theirs.
Amount ModelBuilder::transient_of(const Group& group, const Option& option) const {
    auto gathered = [&](const States& states) {
        for (std::size_t a = 0; a < states.size(); ++a)
            if (option.held[a] && states[a] == replicated) return true;
        return false;
    };
    Amount most = 0;
    for (std::size_t m = 0; m < group.members.size(); ++m) {
        const Group::Member& member = group.members[m];
        const Node& node = graph_.node(member.node);
        const MenuItem& item = option.member(m);
        Amount bytes = 0;
        for (std::size_t i = 0; i < node.inputs.size(); ++i)
            if (graph_.parameter_of(node.inputs[i]) != nullptr && gathered(item.inputs[i]))
                bytes += item.local_inputs[i].bytes().count;
        for (std::size_t o = 0; o < node.outputs.size(); ++o)
            if (!is_view(node) && !member.saved[o]) bytes += item.local_outputs[o].bytes().count;
        most = std::max(most, bytes);
        for (NodeId id : member.backward) {
            const Node& backward = graph_.node(id);
            if (is_view(backward)) continue;
            const MenuItem part = by_names(graph_, id, item.split, options_.axes);
            bytes = 0;
            for (std::size_t i = 0; i < backward.inputs.size(); ++i) {
                const NodeId producer = graph_.value(backward.inputs[i]).producer;
                const bool gradient = producer != NodeId::none && graph_.node(producer).phase != Phase::forward;
                const bool weight = graph_.parameter_of(backward.inputs[i]) != nullptr && gathered(part.inputs[i]);
                if (gradient || weight) bytes += part.local_inputs[i].bytes().count;
            }
            for (std::size_t o = 0; o < backward.outputs.size(); ++o) {
                const bool accumulated = std::ranges::any_of(graph_.outputs(), [&](const Output& output) {
                    return output.value == backward.outputs[o] && output.parameter != ValueId::none;
                });
                if (!accumulated || gathered(part.outputs[o])) bytes += part.local_outputs[o].bytes().count;
            }
            most = std::max(most, bytes);
        }
    }
    return most;
}

// ---- Values with several readers

void ModelBuilder::add_flow_vertex(int f) {
    const Flow& flow = model_.structure_.flows[at(f)];
    const TensorType& type = type_of(flow);
    std::vector<std::set<AxisState>> seen(options_.axes.size()); // states that an end may have
    auto note = [&](const States& states) {
        for (std::size_t a = 0; a < states.size(); ++a) seen[a].insert(states[a] == partial ? replicated : states[a]);
    };
    for (const Option& option : model_.vertices_[at(group_vertex_[at(flow.group)])].options)
        note(option.member(at(flow.member)).outputs[at(flow.output)]);
    for (const Flow::Use& use : flow.uses)
        for (const Option& option : model_.vertices_[at(group_vertex_[at(use.group)])].options)
            note(option.item.inputs[use.input]);
    std::vector<Option> options = {Option{}};
    for (std::size_t a = 0; a < options_.axes.size(); ++a) {
        seen[a].insert(replicated);
        std::vector<Option> longer;
        for (const Option& option : options)
            for (AxisState state : seen[a]) {
                Option next = option;
                if (state >= 0 && local_type(type, option.states, options_.axes).shape[state] < options_.axes[a])
                    continue;
                next.states.push_back(state);
                next.sums_first.push_back(false);
                longer.push_back(next);
                if (state != replicated) continue;
                next.sums_first.back() = true;
                longer.push_back(next);
            }
        options = std::move(longer);
    }
    StrategyModel::Vertex vertex{-1, f, {}};
    for (const Option& option : options)
        for (const bool keep : {false, true}) {
            if (keep && !flow.reads_kept) continue;
            vertex.options.push_back(option);
            vertex.options.back().keep = keep;
        }
    flow_vertex_[at(f)] = static_cast<int>(model_.vertices_.size());
    const std::string& name = model_.structure_.groups[at(flow.group)].name;
    model_.problem_.nodes.push_back(
        {"the result of " + name, flow.times, std::vector<OptionCost>(vertex.options.size())});
    model_.vertices_.push_back(std::move(vertex));
}

void ModelBuilder::check_axes() const {
    for (std::size_t a = 0; a < options_.axes.size(); ++a) {
        if (options_.axes[a] == 1) continue;
        const bool used = std::ranges::any_of(model_.vertices_, [&](const StrategyModel::Vertex& vertex) {
            return std::ranges::any_of(vertex.options, [&](const Option& option) {
                return option.item.split[a] != sharding::on_every_rank &&
                       option.item.split[a] != sharding::on_partial_sums;
            });
        });
        if (!used)
            fail("no operator of the model can be split over {} ranks, axis {} of the tensor mesh {}; a smaller axis "
                 "would be of use",
                 options_.axes[a], a, fmt::join(options_.axes, "x"));
    }
}

} // namespace tutti::planner::strategies

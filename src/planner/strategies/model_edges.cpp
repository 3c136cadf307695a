#include "planner/strategies/model_builder.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::planner::strategies {
namespace {

bool has_partial(const States& states) { return std::ranges::find(states, partial) != states.end(); }

} // namespace

ModelBuilder::Cell ModelBuilder::delivery(const Flow& flow, const Option& from, const States& taken,
                                          const States& gradient, bool saved, bool keep) const {
    const TensorType& type = type_of(flow);
    const States& given = from.member(at(flow.member)).outputs[at(flow.output)];
    Cell cell;
    const Amount forward = resharding_.seconds(type, given, taken);
    const Amount backward = resharding_.seconds(type, gradient, gradient_wanted(given));
    if (forward == forbidden || backward == forbidden) return {{0, forbidden, 0}, 0};
    cell.cost.time = forward + backward;
    const bool gathered = gathers(given, taken);
    const Amount there = local_bytes(type, taken, options_.axes);
    if (given != taken && !(saved && (keep || !gathered))) cell.cost.transient = weighted(there);
    if (!saved) return cell;
    Amount bytes = 0, least = 0;
    if (flow.kept) { // of the storage, of which this may be a view
        const Group& group = model_.structure_.groups[at(flow.group)];
        const TensorType& storage =
            graph_.type(graph_.node(group.members[at(flow.storage_member)].node).outputs[at(flow.storage_output)]);
        bytes =
            local_bytes(storage, from.member(at(flow.storage_member)).outputs[at(flow.storage_output)], options_.axes);
        least = share(storage.bytes().count);
    }
    if (has_partial(given) || (gathered && keep)) bytes = there;
    if (gathered && !keep) { // what was gathered is gathered again
        States kept = given;
        for (std::size_t a = 0; a < kept.size(); ++a)
            if (kept[a] == partial) kept[a] = taken[a];
        if (has_partial(given)) bytes = local_bytes(type, kept, options_.axes);
        cell.cost.time += resharding_.seconds(type, kept, taken);
    }
    cell.saved = options_.in_flight * bytes;
    cell.cost.redundancy = options_.in_flight * std::max<Amount>(0, bytes - least);
    return cell;
}

void ModelBuilder::add_direct(int f) {
    const Flow& flow = model_.structure_.flows[at(f)];
    const Flow::Use& use = flow.uses[0];
    const int from = group_vertex_[at(flow.group)], to = group_vertex_[at(use.group)];
    std::vector<EdgeCost> costs;
    std::vector<Amount> saved;
    for (std::size_t i = 0; i < model_.vertices_[at(from)].options.size(); ++i)
        for (std::size_t j = 0; j < model_.vertices_[at(to)].options.size(); ++j) {
            const Option &u = model_.vertices_[at(from)].options[i], &v = model_.vertices_[at(to)].options[j];
            const States& taken = v.item.inputs[use.input];
            const Cell cell = delivery(flow, u, taken, gradient_given(taken, v.item.split), use.saved, v.keep);
            costs.push_back(cell.cost);
            // Neighbours overlap: weight gradients wait for a collective, weights are gathered ahead.
            costs.back().transient += model_.problem_.nodes[at(from)].options[i].transient +
                                      model_.problem_.nodes[at(to)].options[j].transient;
            saved.push_back(cell.saved);
        }
    model_.arrows_.push_back({f, from, to, 0});
    add_edge(from, to, flow.times, std::move(costs), std::move(saved));
}

void ModelBuilder::add_handed_on(int f) {
    const Flow& flow = model_.structure_.flows[at(f)];
    const int from = group_vertex_[at(flow.group)], own = flow_vertex_[at(f)];
    auto gradient_of = [](const Option& option) {
        States states = option.states;
        for (std::size_t a = 0; a < states.size(); ++a)
            if (option.sums_first[a]) states[a] = partial;
        return states;
    };
    std::vector<EdgeCost> costs;
    std::vector<Amount> saved;
    for (const Option& u : model_.vertices_[at(from)].options)
        for (const Option& v : model_.vertices_[at(own)].options) {
            const Cell cell = delivery(flow, u, v.states, gradient_of(v), flow.reads_kept, v.keep);
            costs.push_back(cell.cost);
            saved.push_back(cell.saved);
        }
    model_.arrows_.push_back({f, from, own, flow.uses.size()});
    add_edge(from, own, flow.times, std::move(costs), std::move(saved));

    for (std::size_t i = 0; i < flow.uses.size(); ++i) {
        const Flow::Use& use = flow.uses[i];
        const int to = group_vertex_[at(use.group)];
        costs.clear();
        for (const Option& u : model_.vertices_[at(own)].options)
            for (std::size_t j = 0; j < model_.vertices_[at(to)].options.size(); ++j) {
                const Option& v = model_.vertices_[at(to)].options[j];
                const States& taken = v.item.inputs[use.input];
                const Amount forward = resharding_.seconds(type_of(flow), u.states, taken);
                const Amount backward =
                    resharding_.seconds(type_of(flow), gradient_given(taken, v.item.split), gradient_of(u));
                if (forward == forbidden || backward == forbidden) {
                    costs.push_back({0, forbidden, 0});
                    continue;
                }
                EdgeCost cost{0, forward + backward, 0};
                if (u.states != taken && use.saved) cost.time += forward;
                if (u.states != taken || !u.keep) // it may have been gathered
                    cost.transient = weighted(local_bytes(type_of(flow), taken, options_.axes)) +
                                     model_.problem_.nodes[at(to)].options[j].transient;
                costs.push_back(cost);
            }
        model_.arrows_.push_back({f, own, to, i});
        add_edge(own, to, flow.times, costs, std::vector<Amount>(costs.size(), 0));
    }
}

// A tensor that two operators read is split where both split it in the same way; else every rank has all of it.
void ModelBuilder::add_ties() {
    const std::int64_t each = options_.precision.bytes_per_parameter();
    for (const Tie& tie : model_.structure_.ties) {
        const auto pairs = static_cast<std::int64_t>(tie.uses.size()) - 1;
        for (std::size_t i = 0; i + 1 < tie.uses.size(); ++i) {
            const auto [g, input] = tie.uses[i];
            const auto [h, other] = tie.uses[i + 1];
            const int from = group_vertex_[at(g)], to = group_vertex_[at(h)];
            if (from == to) continue;
            const TensorType& type =
                graph_.type(graph_.node(model_.structure_.groups[at(g)].members[0].node).inputs[input]);
            std::vector<EdgeCost> costs;
            std::vector<Amount> held;
            for (const Option& u : model_.vertices_[at(from)].options)
                for (const Option& v : model_.vertices_[at(to)].options) {
                    const bool same = u.item.inputs[input] == v.item.inputs[other];
                    const States whole(options_.axes.size(), replicated);
                    const Amount bytes =
                        each * held_elements(type, same ? u.item.inputs[input] : whole, u.held) / pairs;
                    held.push_back(bytes);
                    if (u.held != v.held)
                        costs.push_back({0, forbidden, 0});
                    else
                        costs.push_back({std::max<Amount>(0, bytes - share(each * type.elements()) / pairs), 0, 0});
                }
            model_.tie_edges_.push_back(static_cast<int>(model_.problem_.edges.size()));
            add_edge(from, to, 1, std::move(costs), std::move(held));
        }
    }
}

void ModelBuilder::add_edge(int from, int to, Amount times, std::vector<EdgeCost> costs, std::vector<Amount> saved) {
    model_.problem_.edges.push_back({from, to, times, std::move(costs)});
    model_.edge_bytes_.push_back(std::move(saved));
}

// What is there while the backward of an operator runs, in the last of its layers: all states, what the micro-batches
// in flight keep, and of the one that goes backward what it has not yet let go of.
void ModelBuilder::add_cap(Bytes cap) {
    Problem& problem = model_.problem_;
    MemoryCap result{cap.count, {}};
    const auto in_flight = options_.in_flight;
    for (std::size_t now = 0; now < group_vertex_.size(); ++now) {
        TimePoint time_point{problem.nodes[at(group_vertex_[now])].name, 0, {}, {}};
        for (std::size_t g = 0; g < group_vertex_.size(); ++g) {
            const int vertex = group_vertex_[g];
            const Amount times = problem.nodes[at(vertex)].times;
            TimePoint::Part part{vertex, {}};
            for (std::size_t o = 0; o < model_.vertices_[at(vertex)].options.size(); ++o) {
                const Option& option = model_.vertices_[at(vertex)].options[o];
                Amount bytes = times * (option.states_bytes + option.saved_bytes);
                if (g > now) bytes -= option.saved_bytes / in_flight;
                if (g == now) bytes += problem.nodes[at(vertex)].options[o].transient;
                part.bytes.push_back(bytes);
            }
            time_point.nodes.push_back(std::move(part));
        }
        for (std::size_t e = 0; e < problem.edges.size(); ++e) {
            const ChoiceEdge& edge = problem.edges[e];
            const bool reads = edge.to == group_vertex_[now];
            TimePoint::Part part{static_cast<int>(e), {}};
            for (std::size_t i = 0; i < edge.costs.size(); ++i)
                part.bytes.push_back(edge.times * model_.edge_bytes_[e][i] + (reads ? edge.costs[i].transient : 0));
            time_point.edges.push_back(std::move(part));
        }
        result.time_points.push_back(std::move(time_point));
    }
    problem.cap = std::move(result);
}

} // namespace tutti::planner::strategies

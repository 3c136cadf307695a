// Runs the graphs of all ranks of a mesh on the reference backend, from one collective to the next; collectives are
// plain loops over the ranks' values.
#pragma once

#include "base/parts.h"
#include "operators/interpreter.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::testing {

struct HostValue {
    Shape shape;
    std::vector<double> values;
};

// Calls visit(index in the whole, index in the part) for every element of the part of a dimension.
template <class Visit>
void for_each_of_part(const Shape& whole, int dim, const Ranges& ranges, Visit visit) {
    std::int64_t outer = 1, inner = 1, part = 0;
    for (int d = 0; d < dim; ++d) outer *= whole[d];
    for (int d = dim + 1; d < whole.rank(); ++d) inner *= whole[d];
    for (std::int64_t o = 0; o < outer; ++o)
        for (const Range& range : ranges)
            for (std::int64_t i = range.begin * inner; i < range.end * inner; ++i)
                visit(static_cast<std::size_t>(o * whole[dim] * inner + i), static_cast<std::size_t>(part++));
}

inline HostValue part_of(const HostValue& whole, int dim, const Ranges& ranges) {
    HostValue part{whole.shape, {}};
    part.shape[dim] = count(ranges);
    part.values.resize(static_cast<std::size_t>(part.shape.elements()));
    for_each_of_part(whole.shape, dim, ranges,
                     [&](std::size_t from, std::size_t to) { part.values[to] = whole.values[from]; });
    return part;
}

inline HostValue joined_parts(const std::vector<HostValue>& parts, int dim, const Parts& ranges) {
    HostValue whole{parts[0].shape, {}};
    whole.shape[dim] = count(ranges);
    whole.values.resize(static_cast<std::size_t>(whole.shape.elements()));
    for (std::size_t r = 0; r < parts.size(); ++r) {
        TUTTI_CHECK(parts[r].shape[dim] == count(ranges[r]), "rank {} brings {}", r, to_string(parts[r].shape));
        for_each_of_part(whole.shape, dim, ranges[r],
                         [&](std::size_t to, std::size_t from) { whole.values[to] = parts[r].values[from]; });
    }
    return whole;
}

inline HostValue combined(const std::vector<HostValue>& parts, const std::string& combine) {
    HostValue result = parts[0];
    for (std::size_t r = 1; r < parts.size(); ++r) {
        TUTTI_CHECK(parts[r].shape == result.shape, "{} and {}", to_string(parts[r].shape), to_string(result.shape));
        for (std::size_t i = 0; i < result.values.size(); ++i)
            result.values[i] = combine == "maximum" ? std::max(result.values[i], parts[r].values[i])
                                                    : result.values[i] + parts[r].values[i];
    }
    return result;
}

// What every rank of a group gets of what they all bring.
inline std::vector<HostValue> exchanged(const std::vector<const Node*>& nodes, const std::vector<HostValue>& brought) {
    const Attributes& a = nodes[0]->attributes;
    const std::string_view op = nodes[0]->op->name;
    auto dim = [&](const char* name) { return static_cast<int>(a.integer(name)); };
    HostValue all;
    if (op == "all_reduce" || op == "reduce_scatter")
        all = combined(brought, a.text("combine"));
    else if (op == "all_gather")
        all = joined_parts(brought, dim("dim"), decode_parts(a.integers("parts")));
    else
        all = joined_parts(brought, dim("gather_dim"), decode_parts(a.integers("gather_parts")));
    std::vector<HostValue> results;
    for (std::size_t r = 0; r < brought.size(); ++r) {
        if (op == "reduce_scatter")
            results.push_back(part_of(all, dim("dim"), decode_parts(a.integers("parts"))[r]));
        else if (op == "all_to_all")
            results.push_back(part_of(all, dim("scatter_dim"), decode_parts(a.integers("scatter_parts"))[r]));
        else
            results.push_back(all);
    }
    return results;
}

class Lockstep {
  public:
    using Groups = std::map<std::string, std::vector<std::vector<std::size_t>>>; // of each axis: lists of ranks

    Lockstep(const std::vector<const Graph*>& graphs, const backend::Device& device, Groups groups)
        : graphs_(graphs), groups_(std::move(groups)) {
        for (const Graph* graph : graphs) ranks_.push_back(std::make_unique<Interpreter>(*graph, device));
    }

    Interpreter& rank(std::size_t r) { return *ranks_[r]; }

    // Every rank goes on to its next collective, until nobody waits for one any more.
    void run() {
        std::vector<std::size_t> next(graphs_.size(), 0);
        for (;;) {
            std::vector<const Node*> waiting(graphs_.size(), nullptr);
            for (std::size_t r = 0; r < graphs_.size(); ++r) {
                const std::size_t first = next[r], all = graphs_[r]->nodes().size();
                while (next[r] < all && !graphs_[r]->nodes()[next[r]].op->collective) ++next[r];
                ranks_[r]->run(first, next[r]);
                if (next[r] < all) waiting[r] = &graphs_[r]->nodes()[next[r]];
            }
            if (std::ranges::count(waiting, nullptr) == std::ssize(waiting)) return;
            bool met = false;
            for (const auto& [axis, groups] : groups_)
                for (const std::vector<std::size_t>& group : groups) {
                    if (!std::ranges::all_of(group, [&](std::size_t r) {
                            return waiting[r] != nullptr && waiting[r]->attributes.text("axis") == axis;
                        }))
                        continue;
                    meet(group, waiting);
                    for (std::size_t r : group) ++next[r];
                    met = true;
                }
            TUTTI_CHECK(met, "ranks wait for one another");
        }
    }

  private:
    void meet(const std::vector<std::size_t>& group, const std::vector<const Node*>& nodes) {
        std::vector<const Node*> theirs;
        std::vector<HostValue> brought;
        for (std::size_t i = 0; i < group.size(); ++i) {
            const Node& node = *nodes[group[i]];
            TUTTI_CHECK(node.op == nodes[group[0]]->op && node.phase == nodes[group[0]]->phase,
                        "rank {} wants {}, rank 0 {}", i, node.op->name, nodes[group[0]]->op->name);
            Attributes expected = nodes[group[0]]->attributes;
            if (expected.has("rank")) expected.set("rank", static_cast<std::int64_t>(i));
            TUTTI_CHECK(node.attributes == expected, "ranks disagree on a {}", node.op->name);
            theirs.push_back(&node);
            brought.push_back({graphs_[group[i]]->shape(node.inputs[0]), ranks_[group[i]]->get(node.inputs[0])});
        }
        const std::vector<HostValue> results = exchanged(theirs, brought);
        for (std::size_t i = 0; i < group.size(); ++i) {
            TUTTI_CHECK(results[i].shape == graphs_[group[i]]->shape(theirs[i]->outputs[0]), "{} gives {}",
                        theirs[i]->op->name, to_string(results[i].shape));
            ranks_[group[i]]->set(theirs[i]->outputs[0], results[i].values);
        }
    }

    std::vector<const Graph*> graphs_;
    std::vector<std::unique_ptr<Interpreter>> ranks_;
    Groups groups_;
};

} // namespace tutti::testing

#include "planner/strategies/problem.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::planner::strategies {
namespace {

// Whether option `a` of a node can stand for option `b` wherever that is chosen.
class Comparison {
  public:
    Comparison(const Problem& problem, int node) : problem_(problem), node_(node) {
        for (const ChoiceEdge& edge : problem.edges)
            if (edge.from == node || edge.to == node) edges_.push_back(&edge);
        if (!problem.cap) return;
        for (const TimePoint& time_point : problem.cap->time_points) {
            for (const TimePoint::Part& part : time_point.nodes)
                if (part.index == node) time_points_.push_back(&part);
            for (const TimePoint::Part& part : time_point.edges)
                if (const ChoiceEdge& edge = problem.edges[at(part.index)]; edge.from == node || edge.to == node)
                    edge_time_points_.push_back(&part);
        }
    }

    bool replaces(int a, int b) const {
        const OptionCost &x = problem_.nodes[at(node_)].options[at(a)], &y = problem_.nodes[at(node_)].options[at(b)];
        if (x.redundancy > y.redundancy || x.transient > y.transient || x.time > y.time) return false;
        for (const TimePoint::Part* part : time_points_)
            if (part->bytes[at(a)] > part->bytes[at(b)]) return false;
        for (const TimePoint::Part* part : edge_time_points_)
            if (!along(problem_.edges[at(part->index)], a, b,
                       [&](std::size_t i, std::size_t j) { return part->bytes[i] <= part->bytes[j]; }))
                return false;
        return std::ranges::all_of(edges_, [&](const ChoiceEdge* edge) {
            return along(*edge, a, b, [&](std::size_t i, std::size_t j) {
                const EdgeCost &p = edge->costs[i], &q = edge->costs[j];
                return p.time <= q.time &&
                       (!q.allowed() || (p.redundancy <= q.redundancy && p.transient <= q.transient));
            });
        });
    }

  private:
    // Whether `holds` does for each pair of cells that differ in this node's option alone.
    template <class Holds>
    bool along(const ChoiceEdge& edge, int a, int b, Holds holds) const {
        const std::size_t rows = problem_.nodes[at(edge.from)].options.size();
        const std::size_t columns = problem_.nodes[at(edge.to)].options.size();
        const bool from = edge.from == node_;
        for (std::size_t other = 0; other < (from ? columns : rows); ++other)
            if (!(from ? holds(at(a) * columns + other, at(b) * columns + other)
                       : holds(other * columns + at(a), other * columns + at(b))))
                return false;
        return true;
    }

    const Problem& problem_;
    int node_;
    std::vector<const ChoiceEdge*> edges_;
    std::vector<const TimePoint::Part*> time_points_, edge_time_points_;
};

// Of each node the options that none replaces; of two that replace each other, the first.
std::vector<std::vector<int>> undominated(const Problem& problem) {
    std::vector<std::vector<int>> kept(problem.nodes.size());
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
        const Comparison comparison(problem, static_cast<int>(n));
        const int options = static_cast<int>(problem.nodes[n].options.size());
        for (int b = 0; b < options; ++b) {
            bool replaced = false;
            for (int a = 0; a < options && !replaced; ++a)
                replaced = a != b && comparison.replaces(a, b) && (a < b || !comparison.replaces(b, a));
            if (!replaced) kept[n].push_back(b);
        }
    }
    return kept;
}

template <class T>
std::vector<T> cells(const std::vector<T>& all, std::size_t columns, const std::vector<int>& from,
                     const std::vector<int>& to) {
    std::vector<T> some;
    for (int f : from)
        for (int t : to) some.push_back(all[at(f) * columns + at(t)]);
    return some;
}

} // namespace

Problem restricted(const Problem& problem, const std::vector<std::vector<int>>& kept) {
    Problem result;
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
        const ChoiceNode& node = problem.nodes[n];
        ChoiceNode& copy = result.nodes.emplace_back(ChoiceNode{node.name, node.times, {}});
        for (int option : kept[n]) copy.options.push_back(node.options[at(option)]);
    }
    auto columns_of = [&](const ChoiceEdge& edge) { return problem.nodes[at(edge.to)].options.size(); };
    for (const ChoiceEdge& edge : problem.edges)
        result.edges.push_back({edge.from, edge.to, edge.times,
                                cells(edge.costs, columns_of(edge), kept[at(edge.from)], kept[at(edge.to)])});
    if (!problem.cap) return result;
    result.cap = MemoryCap{problem.cap->most, {}};
    for (const TimePoint& time_point : problem.cap->time_points) {
        TimePoint& copy = result.cap->time_points.emplace_back(TimePoint{time_point.name, time_point.always, {}, {}});
        for (const TimePoint::Part& part : time_point.nodes) {
            TimePoint::Part& some = copy.nodes.emplace_back(TimePoint::Part{part.index, {}});
            for (int option : kept[at(part.index)]) some.bytes.push_back(part.bytes[at(option)]);
        }
        for (const TimePoint::Part& part : time_point.edges) {
            const ChoiceEdge& edge = problem.edges[at(part.index)];
            copy.edges.push_back(
                {part.index, cells(part.bytes, columns_of(edge), kept[at(edge.from)], kept[at(edge.to)])});
        }
    }
    return result;
}

void check(const Problem& problem) {
    for (const ChoiceNode& node : problem.nodes) {
        TUTTI_CHECK(!node.options.empty(), "{} has no options", node.name);
        TUTTI_CHECK(node.times >= 0, "{} counts {} times", node.name, node.times);
        for (const OptionCost& option : node.options)
            TUTTI_CHECK(option.redundancy >= 0 && option.transient >= 0 && option.time >= 0,
                        "an option of {} costs {} bytes, {} bytes and {}", node.name, option.redundancy,
                        option.transient, option.time);
    }
    const int count = static_cast<int>(problem.nodes.size());
    for (const ChoiceEdge& edge : problem.edges) {
        TUTTI_CHECK(edge.from >= 0 && edge.from < count && edge.to >= 0 && edge.to < count && edge.from != edge.to,
                    "an edge from {} to {} of {} nodes", edge.from, edge.to, count);
        TUTTI_CHECK(edge.costs.size() ==
                        problem.nodes[at(edge.from)].options.size() * problem.nodes[at(edge.to)].options.size(),
                    "the matrix from {} to {} has {} cells", problem.nodes[at(edge.from)].name,
                    problem.nodes[at(edge.to)].name, edge.costs.size());
        for (const EdgeCost& cost : edge.costs)
            TUTTI_CHECK(cost.redundancy >= 0 && cost.time >= 0 && cost.transient >= 0, "an edge costs {} and {}",
                        cost.redundancy, cost.time);
    }
}

std::optional<Solution> evaluate(const Problem& problem, std::vector<int> options) {
    Solution solution;
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
        const ChoiceNode& node = problem.nodes[n];
        const OptionCost& option = node.options[at(options[n])];
        solution.redundancy += node.times * option.redundancy;
        solution.time += node.times * option.time;
        solution.transient = std::max(solution.transient, option.transient);
    }
    for (const ChoiceEdge& edge : problem.edges) {
        const EdgeCost& cost = problem.cost(edge, options[at(edge.from)], options[at(edge.to)]);
        if (!cost.allowed()) return std::nullopt;
        solution.redundancy += edge.times * cost.redundancy;
        solution.time += edge.times * cost.time;
        solution.transient = std::max(solution.transient, cost.transient);
    }
    solution.redundancy += solution.transient;
    if (problem.cap)
        for (const TimePoint& time_point : problem.cap->time_points) {
            Amount bytes = time_point.always;
            for (const TimePoint::Part& part : time_point.nodes) bytes += part.bytes[at(options[at(part.index)])];
            for (const TimePoint::Part& part : time_point.edges) {
                const ChoiceEdge& edge = problem.edges[at(part.index)];
                bytes += part.bytes[at(options[at(edge.from)]) * problem.nodes[at(edge.to)].options.size() +
                                    at(options[at(edge.to)])];
            }
            solution.peak = std::max(solution.peak, bytes);
        }
    solution.options = std::move(options);
    return solution;
}

bool fits(const Problem& problem, const Solution& solution) {
    return !problem.cap || solution.peak <= problem.cap->most;
}

Solution Reduced::restored(const Problem& whole, const Solution& solution) const {
    std::vector<int> options;
    for (std::size_t n = 0; n < kept.size(); ++n) options.push_back(kept[n][at(solution.options[n])]);
    const std::optional<Solution> result = evaluate(whole, std::move(options));
    TUTTI_CHECK(result.has_value(), "a reduced problem allows what the whole one does not");
    return *result;
}

Reduced reduced(const Problem& problem) {
    Reduced result{problem, std::vector<std::vector<int>>(problem.nodes.size())};
    for (std::size_t n = 0; n < problem.nodes.size(); ++n)
        for (std::size_t o = 0; o < problem.nodes[n].options.size(); ++o) result.kept[n].push_back(static_cast<int>(o));
    while (true) { // where an option falls, others of its neighbours may
        const std::vector<std::vector<int>> some = undominated(result.problem);
        bool same = true;
        for (std::size_t n = 0; n < some.size(); ++n) {
            same = same && some[n].size() == result.kept[n].size();
            std::vector<int> named;
            for (int option : some[n]) named.push_back(result.kept[n][at(option)]);
            result.kept[n] = std::move(named);
        }
        if (same) return result;
        result.problem = restricted(result.problem, some);
    }
}

} // namespace tutti::planner::strategies

// The choice of strategies as a plain problem, without graphs: nodes with options, and edges between them whose cost
// depends on both ends. What is chosen once may count many times: layers of the same kind share their nodes.
//
//   redundancy(x) = sum of the redundant bytes of nodes and edges + the largest transient of any chosen option or pair
//   time(x)       = sum of the times of nodes and edges
//
// All numbers are whole, so that solvers agree to the last digit: bytes, and any unit of time.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::planner::strategies {

// Nodes, options and values count in ints.
constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

using Amount = std::int64_t;
// A pair of options that cannot stand beside each other.
constexpr Amount forbidden = std::numeric_limits<Amount>::max();

struct OptionCost {
    Amount redundancy = 0;
    Amount transient = 0; // weighted as it counts against redundancy
    Amount time = 0;
    bool operator==(const OptionCost&) const = default;
};

struct EdgeCost {
    Amount redundancy = 0;
    Amount time = 0; // or forbidden
    Amount transient = 0;
    bool allowed() const { return time != forbidden; }
    bool operator==(const EdgeCost&) const = default;
};

struct ChoiceNode {
    std::string name;
    Amount times = 1; // how often redundancy and time count; a transient counts once
    std::vector<OptionCost> options;
};

struct ChoiceEdge {
    int from = 0, to = 0;
    Amount times = 1;
    std::vector<EdgeCost> costs; // option of `to` fastest
};

// What is in memory at one time point of a step, as it depends on the choice.
struct TimePoint {
    struct Part {
        int index = 0;             // of a node, or of an edge
        std::vector<Amount> bytes; // per option, or per cell of the edge's matrix
    };
    std::string name;
    Amount always = 0; // whatever is chosen
    std::vector<Part> nodes, edges;
};

// A cap that must hold at every time point.
struct MemoryCap {
    Amount most = 0;
    std::vector<TimePoint> time_points;
};

struct Problem {
    std::vector<ChoiceNode> nodes;
    std::vector<ChoiceEdge> edges;
    std::optional<MemoryCap> cap;

    const EdgeCost& cost(const ChoiceEdge& edge, int from, int to) const {
        return edge.costs[static_cast<std::size_t>(from) * nodes[static_cast<std::size_t>(edge.to)].options.size() +
                          static_cast<std::size_t>(to)];
    }
};

// Sizes fit, costs are not negative. What fails is a defect of who built the problem.
void check(const Problem& problem);

struct Solution {
    std::vector<int> options; // per node
    Amount redundancy = 0;    // with the transient
    Amount transient = 0;
    Amount time = 0;
    Amount peak = 0; // bytes at the fullest time point; 0 without time points
    bool operator==(const Solution&) const = default;
};

// What a choice costs; nothing where two of its options cannot stand beside each other.
std::optional<Solution> evaluate(const Problem& problem, std::vector<int> options);
// Whether it keeps to the cap; a problem without one is content with all.
bool fits(const Problem& problem, const Solution& solution);

// What is asked for: the least of something among the choices that keep to the bounds.
struct Goal {
    enum class Least : std::uint8_t { redundancy, time, peak };
    Least least = Least::redundancy;
    std::optional<Amount> most_redundancy{}, most_time{};
};

// The problem with some of its options only; per node, those that are kept.
Problem restricted(const Problem& problem, const std::vector<std::vector<int>>& kept);

// The same problem without options that another one of their node can replace at no loss, whatever else is chosen.
struct Reduced {
    Problem problem;
    std::vector<std::vector<int>> kept; // per node: the options' numbers in the problem it was made of

    Solution restored(const Problem& whole, const Solution& solution) const;
};
Reduced reduced(const Problem& problem);

} // namespace tutti::planner::strategies

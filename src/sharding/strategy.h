// The consequences of a node's strategy: the states of its inputs and outputs, and its attributes for a rank's part.
// All of them are read off the operator's loop dims.
#pragma once

#include "graph/graph.h"
#include "sharding/sharding.h"

#include <optional>
#include <span>
#include <vector>

namespace tutti::sharding {

struct OperandStates {
    std::vector<Sharding> inputs, outputs;
};

// Nothing where the strategy is not legal: the loop is whole, the parts leave a rank without work or cannot be told
// in ranges, or the operator needs to know a single place where its part begins.
std::optional<OperandStates> placement_of(const Graph& graph, const Node& node, const Strategy& strategy, int size);

// The attributes of one rank's part.
Attributes local_attributes(const Graph& graph, const Node& node, const Strategy& strategy, int rank);

// Every legal strategy, with parts as even as possible, in one range each; the first computes everything everywhere.
// Those that keep partial sums are not among them: they are legal wherever Operator::linear says so.
std::vector<Strategy> strategies_of(const Graph& graph, NodeId node, int size);

// The strategies that take an input, or give an output, in the state it has in `states`, which tells it of all inputs,
// or outputs. Operators that join pieces look at the others, too.
enum class Side { inputs, outputs };
std::vector<Strategy> strategies_with(const Graph& graph, const Node& node, Side side, std::size_t operand,
                                      std::span<const Sharding> states, int size);

} // namespace tutti::sharding

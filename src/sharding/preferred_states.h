// Preferred states: the shardings in which the readers of a value would like to have it. A preference begins where it
// is decided, at attention's heads and at the inputs of matmuls, and travels backward through views and elementwise
// operators to the matmuls that make the value. So queries, keys and values come out split by heads, in one matrix or
// in three, and both matmuls of a feed-forward network match.
#pragma once

#include "graph/graph.h"
#include "sharding/shard.h"

#include <optional>
#include <span>
#include <vector>

namespace tutti::sharding {

struct PreferredState {
    Sharding state;
    bool strong = false; // of attention, which accepts no other state
};

// Attention by whole groups of key heads. Error where there are fewer than ranks.
Strategy split_heads(const Graph& graph, const Node& node, const AxisPlace& place);

// The loop of a node by its name; -1 where there is none.
int loop_named(const Graph& graph, const Node& node, std::string_view name);
// The loop split as evenly as possible.
Strategy split_evenly(const Graph& graph, const Node& node, int loop, int size);
// linear and embedding with a parameter of their own, which parts of the node are parts of.
bool has_matrix(const Graph& graph, const Node& node);

// The preferred state per value of the graph, for forward values only. `asked`: per node, or empty.
std::vector<std::optional<PreferredState>> find_preferred_states(const Graph& graph, const AxisPlace& place,
                                                                 std::span<const NodeRequest> asked);
// The strategies of a node with results in their preferred states. `preferred`: per value of the graph.
std::vector<Strategy> strategies_with_preferences(const Graph& graph, const Node& node,
                                                  std::span<const std::optional<PreferredState>> preferred, int size);

} // namespace tutti::sharding

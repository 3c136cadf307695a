// Wishes: states in which values would be welcome further on. They travel backward from where the choice is made, the
// heads of attention and the inputs of products, through views and elementwise operators to the products that make the
// values: so queries, keys and values come out split by heads, in one matrix or in three, and the halves of a
// feed-forward network match.
#pragma once

#include "graph/graph.h"
#include "sharding/shard.h"

#include <optional>
#include <span>
#include <vector>

namespace tutti::sharding {

struct Wish {
    Sharding state;
    bool strong = false; // attention's: it can do nothing else
};

// Attention by whole groups of key heads. Error where there are fewer than ranks.
Strategy split_heads(const Graph& graph, const Node& node, const AxisPlace& place);

// The loop of a node by its name; -1 where there is none.
int loop_named(const Graph& graph, const Node& node, std::string_view name);
// The loop split as evenly as possible.
Strategy split_evenly(const Graph& graph, const Node& node, int loop, int size);
// linear and embedding with a parameter of their own, which parts of the node are parts of.
bool has_matrix(const Graph& graph, const Node& node);

// Per value of the graph; of forward values only. `asked`: per node, or empty.
std::vector<std::optional<Wish>> find_wishes(const Graph& graph, const AxisPlace& place,
                                             std::span<const NodeWish> asked);

} // namespace tutti::sharding

// Resharding: the collective that brings a value from the state that it has to the state that is wanted.
//
//   partial -> replicated   all_reduce              split -> replicated          all_gather
//   partial -> split        reduce_scatter          split -> split elsewhere     all_to_all, or gathered and sliced
//   replicated -> split     a view of what is there
//
// No value becomes partial again.
#pragma once

#include "graph/graph.h"
#include "sharding/sharding.h"

#include <span>
#include <string>
#include <vector>

namespace tutti::sharding {

// A value as it is there on this rank.
struct Representation {
    Sharding state;
    ValueId value = ValueId::none; // in the local graph
    bool gathered = false;         // in the forward pass: the backward gathers again instead of keeping it
};

// The states to go through, the last being `to`; none where they are the same.
std::vector<Sharding> route(const Sharding& from, const Sharding& to);

// Bytes that each rank sends, for a value of so many in all. Views cost nothing.
double communication(const Sharding& from, const Sharding& to, Bytes whole, int size);

// Which of the representations is the cheapest to make a state from, the first where several are. In the backward pass
// those that the forward gathered do not count.
std::size_t cheapest(std::span<const Representation> there, const Sharding& wanted, Bytes whole, int size,
                     bool backward);

// Adds the next representation on a route: one or a few nodes.
Representation reshard(Graph& graph, const Representation& from, const Sharding& to, const AxisPlace& place,
                       bool backward, const std::string& source);
// The same without a graph.
Representation resharded(const Representation& from, const Sharding& to, bool backward);

} // namespace tutti::sharding

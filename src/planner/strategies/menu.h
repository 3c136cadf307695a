// The menu of an operator: everything it may do along the axes of the tensor mesh, read off its loop dims.
#pragma once

#include "graph/graph.h"
#include "sharding/strategy.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti::planner::strategies {

// What ranks along one axis hold of a value: a part of a dimension, all of it, or a partial sum. Which part each rank
// has is left to mesh/, where neighbours agree on it.
using AxisState = int;
constexpr AxisState replicated = -1, partial = -2; // else the dimension that is split
using States = std::vector<AxisState>;             // per axis

AxisState state_of(const sharding::Sharding& sharding);
std::string to_string(const States& states, std::span<const int> axes); // "split 1 over 8", "partial over 2, whole"

// What a rank has of a value; where parts are uneven, the most that one does.
TensorType local_type(const TensorType& whole, const States& states, std::span<const int> axes);
std::int64_t local_bytes(const TensorType& whole, const States& states, std::span<const int> axes);

// How an operator is shared along all axes.
struct MenuItem {
    std::vector<std::string> split;      // per axis, in the words of sharding/operator_strategies.h
    std::vector<States> inputs, outputs; // per operand
    std::vector<TensorType> local_inputs, local_outputs;
    Attributes attributes; // of a part
};

// Whether the operator says which loops it has. Without, there is only one item: everybody computes everything.
bool has_loops(const Operator& op);

// All that is legal, with the loops of every axis; for sums also to add partial sums up.
std::vector<MenuItem> menu_of(const Graph& graph, NodeId node, std::span<const int> axes);

// The one item that takes an input in the sharding that it has, without communication; none if there is no such item.
std::optional<MenuItem> following(const Graph& graph, NodeId node, std::size_t input, const States& states,
                                  std::span<const int> axes);

// The item that splits the loops of these names where the operator has them and may split them: what the backward of an
// operator does.
MenuItem by_names(const Graph& graph, NodeId node, std::span<const std::string> split, std::span<const int> axes);

} // namespace tutti::planner::strategies

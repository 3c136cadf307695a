// Shards a graph over one axis of the mesh: the step of one device becomes the step of one rank, with smaller tensors
// and with collectives as nodes. A mesh of several axes is sharded axis by axis.
//
// An assignment says how the ranks share every node; `shard` turns any assignment into a graph. `default_assignment` is
// Megatron's tensor parallelism: consecutive matmuls are split by columns, then by rows; attention by heads; the
// vocabulary by words. Everything follows from the whole graph and the size of the axis, never from the rank, so ranks
// that shard the same graph in the same way agree on every collective and its place in the order.
//
// The graph comes from differentiation, cleared of common subexpressions and dead code, before anything is fused.
// sharding/borders.h has the names by which inputs and outputs are known as the borders of a pipeline stage.
#pragma once

#include "graph/graph.h"
#include "sharding/sharding.h"
#include "sharding/slice.h"
#include "sharding/strategy.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::sharding {

struct Assignment {
    std::vector<Strategy> nodes;
    std::vector<Sharding> inputs;                 // the states in which graph inputs come
    std::vector<Sharding> parameters;             // split or replicated
    std::vector<std::optional<Sharding>> outputs; // of graph outputs without a parameter; none: as it is, reduced
    // Per node: activations that are gathered for it are kept for the backward. Empty: none; they are gathered again.
    std::vector<bool> keeps{};
    // As in ShardOptions.
    std::vector<std::optional<Sharding>> stored{};
    std::vector<bool> reduced{};
};

struct Sharded {
    Graph graph;                     // inputs, outputs, stored tensors and parameters keep their names and order
    std::vector<TensorSlice> stored; // per stored tensor: what of the whole one is owned here
    std::vector<bool> partial;       // per stored tensor: its gradients are partial sums, to be reduced once per step
    std::vector<Sharding> inputs, outputs; // of graph inputs and outputs
    std::vector<NodeId> origins;  // per node: the one of the whole graph that it is a part of; none: it moves data
    std::vector<Sharding> states; // per stored tensor: replicated, or split along a dimension of its own
};

// What a plan's strategies (sharding/operator_strategies.h) require of a node.
struct NodeRequest {
    std::string_view split = "follow";
    bool keep_gathered = false, reduce_at_once = false;
    NodeId forward = NodeId::none; // the node whose gradient it computes, or itself
};

struct ShardOptions {
    bool sequence_parallel = false;         // operators other than attention and matmuls are split along the sequence
    std::map<std::string, Sharding> inputs; // states of graph inputs by name; others are replicated, and the gradient
                                            // of a stage's output comes as that output goes
    std::vector<NodeRequest> nodes{};       // per node; empty: nothing is asked
    std::vector<bool> sharded{}; // per stored tensor: sharded although no node splits it, and gathered for use (as FSDP
                                 // does); empty: none
    std::vector<std::optional<Sharding>> stored{}; // per stored tensor: the state in which other stages of the model
                                                   // own it, and this one has to; empty: none
    std::vector<bool> reduced{}; // per stored tensor: its gradients are reduced in every micro-batch, since other
                                 // stages have no partial sums of them; empty: none
};

// The assignment of the forward pass does not depend on whether there is a backward pass. Error if there are fewer key
// heads than ranks, or a node cannot be split as required.
Assignment default_assignment(const Graph& graph, const AxisPlace& place, const ShardOptions& options);

// For every assignment: the loss is replicated; the gradient of a split parameter is split in the same way, those of
// other parameters are replicated or partial; the gradient of a stage's input has the input's state.
// `more_axes`: the result is split along another axis next, so it has to be the same on all ranks but for attributes.
Sharded shard(const Graph& graph, const AxisPlace& place, const Assignment& assignment, bool more_axes = false);

// Reorders sums of several gradients. Those that matmuls give are partial once sharded; they are added to one another
// first, so that they are reduced once. Runs before `default_assignment`.
Graph add_matmuls_first(const Graph& graph);

} // namespace tutti::sharding

// Sharding of a graph over one axis of the mesh: from the step of one device to the step of one rank, with smaller
// tensors and collectives as nodes. A mesh of several axes is sharded axis by axis.
//
// An assignment says how the ranks share every node; `shard` turns any of them into a graph, and `default_assignment`
// is Megatron's: products that follow one another are split by columns, then by rows, attention by heads, the
// vocabulary by words. Everything is decided from the whole graph and the size of the axis, never from the rank, so
// ranks that shard the same graph in the same way agree on every collective and its place in the order.
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
};

struct Sharded {
    Graph graph;                     // inputs, outputs, stored tensors and parameters keep their names and order
    std::vector<TensorSlice> stored; // per stored tensor: what of the whole one is owned here
    std::vector<bool> partial;       // per stored tensor: its gradients are partial sums, to be reduced once per step
    std::vector<Sharding> inputs, outputs; // of graph inputs and outputs
    std::vector<NodeId> origins; // per node: the one of the whole graph that it is a part of; none: it moves data
};

// What is asked of a node (sharding/operator_strategies.h).
struct NodeWish {
    std::string_view split = "follow";
    bool keep_gathered = false, reduce_at_once = false;
    NodeId forward = NodeId::none; // the node whose gradient it computes, or itself
};

struct ShardOptions {
    bool sequence_parallel = false;         // what is neither attention nor product is split along the sequence
    std::map<std::string, Sharding> inputs; // states of graph inputs by name; others are replicated, and the gradient
                                            // of a stage's output comes as that output goes
    std::vector<NodeWish> nodes{};          // per node; empty: nothing is asked
    std::vector<bool> held{}; // per stored tensor: spread where no node splits it, and gathered for use; empty: none
};

// What the forward pass does does not depend on whether there is a backward. Error where there are fewer key heads than
// ranks, or a node cannot do what is asked of it.
Assignment default_assignment(const Graph& graph, const AxisPlace& place, const ShardOptions& options);

// Whatever the assignment, the loss comes out replicated, gradients of split parameters split in the same way, those of
// others replicated or partial, gradients of a stage's inputs in the states of these.
Sharded shard(const Graph& graph, const AxisPlace& place, const Assignment& assignment);

// Sums of several gradients in another order: those that products give, which sharding leaves partial, are added to one
// another first, so that they are reduced once. Run before `default_assignment`.
Graph add_products_first(const Graph& graph);

} // namespace tutti::sharding

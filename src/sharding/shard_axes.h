// Shards a graph over all parts of the tensor axis by a plan's strategies: what a rank of it computes and owns.
#pragma once

#include "sharding/operator_strategies.h"
#include "sharding/shard.h"

#include <map>
#include <string>
#include <vector>

namespace tutti::sharding {

struct ShardAxesOptions {
    OperatorStrategies strategies;
    bool sequence_parallel = false; // for what no choice names
    std::map<std::string, std::vector<Sharding>>
        inputs{};                 // states of graph inputs by name, per axis, as in ShardOptions
    const Graph* whole = nullptr; // as in operator_names
    // By the names of stored tensors, per axis, as in ShardOptions.
    std::map<std::string, std::vector<Sharding>> stored{};
    std::map<std::string, std::vector<bool>> reduced{};
};

struct ShardedAxes {
    Graph graph;
    std::vector<TensorSlice> stored;                    // per stored tensor: of the whole one
    std::vector<std::vector<Sharding>> states;          // per axis and stored tensor, as in Sharded
    std::vector<std::vector<bool>> partial, replicated; // per axis and stored tensor: its gradients are partial sums;
                                                        // every rank of the axis owns the same of it
    std::vector<std::vector<Sharding>> inputs, outputs; // per axis
    std::vector<NodeId> origins;                        // per node, as in Sharded
};

// This rank's place along every axis.
std::vector<AxisPlace> places_of(const OperatorStrategies& strategies, int tensor_rank);

// Error where a choice cannot be followed: a loop that is not there, or too small, or whole.
ShardedAxes shard_axes(const Graph& graph, int tensor_rank, const ShardAxesOptions& options);

// What of a value this rank has by states along all axes.
TensorSlice owned_slice(const Shape& whole, const std::vector<Sharding>& states, const std::vector<AxisPlace>& places);

} // namespace tutti::sharding

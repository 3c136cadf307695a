// Holds a sharded step against the whole one: the loss, every other output, and every stored tensor's gradient.
#pragma once

#include "graph/autodiff.h"
#include "graph/passes.h"
#include "models/model.h"
#include "sharding/lockstep.h"
#include "sharding/shard.h"

#include <functional>
#include <string>
#include <vector>

namespace tutti::testing {

// What `shard` takes: forward, loss and backward, without common subexpressions, dead code and fused nodes.
Graph step_graph(const models::Model& model);

struct ShardedRank {
    Graph graph;
    std::vector<sharding::TensorSlice> stored;
    std::vector<std::vector<bool>> partial;                       // per axis, per stored tensor
    std::vector<std::vector<sharding::Sharding>> inputs, outputs; // per axis
};

// How the ranks of a mesh come to their graphs, the first axis slowest: each is sharded over every axis in turn.
struct ShardedMesh {
    std::vector<sharding::AxisPlace> axes; // ranks do not matter
    std::vector<ShardedRank> ranks;
};

using Assign = std::function<sharding::Assignment(const Graph&, const sharding::AxisPlace&)>;
ShardedMesh shard_mesh(const Graph& step, const std::vector<sharding::AxisPlace>& axes, const Assign& assign);

// Of graph inputs and stored tensors.
struct Numbers {
    std::vector<std::vector<double>> inputs, stored;
};
// Random ones. Integers are below the last dimension of the output "logits".
Numbers draw_numbers(const Graph& step, std::uint32_t seed = 1);

// Runs both on these numbers. A line per difference.
std::vector<std::string> differences(const Graph& step, const ShardedMesh& mesh, const Numbers& numbers);
inline std::vector<std::string> differences(const Graph& step, const ShardedMesh& mesh) {
    return differences(step, mesh, draw_numbers(step));
}

} // namespace tutti::testing

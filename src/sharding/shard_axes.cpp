#include "sharding/shard_axes.h"

#include "base/error.h"
#include "sharding/forward_nodes.h"

#include <algorithm>

namespace tutti::sharding {
namespace {

// What choices say of a graph: per node, and per stored tensor.
struct Asked {
    std::vector<const OperatorStrategy*> nodes;
    std::vector<NodeId> forward; // as forward_nodes has it
    std::vector<const TensorStrategy*> tensors;

    Asked(const Graph& graph, const ShardAxesOptions& options) : forward(forward_nodes(graph)) {
        for (const OperatorName& name : operator_names(graph, options.whole))
            nodes.push_back(strategy_for(options.strategies, name));
        for (const StoredTensor& stored : graph.stored())
            tensors.push_back(strategy_for(options.strategies, stored.name));
    }

    // Along an axis, for the graph that sharding along the axes before has made; `origins` are its nodes' in the whole.
    void tell(std::size_t axis, const std::vector<NodeId>& origins, ShardOptions& options) const {
        std::vector<NodeId> local(nodes.size(), NodeId::none);
        for (std::size_t n = 0; n < origins.size(); ++n)
            if (origins[n] != NodeId::none) local[index(origins[n])] = static_cast<NodeId>(n);
        for (NodeId origin : origins) {
            NodeRequest& preferred = options.nodes.emplace_back();
            const OperatorStrategy* choice = origin == NodeId::none ? nullptr : nodes[index(origin)];
            if (choice == nullptr) continue;
            preferred = {choice->split[axis], choice->keep_gathered, choice->reduce_at_once};
            if (const NodeId of = forward[index(origin)]; of != NodeId::none) preferred.forward = local[index(of)];
        }
        for (const TensorStrategy* choice : tensors)
            options.sharded.push_back(choice != nullptr && choice->sharded[axis]);
    }
};

// What other stages say of stored tensors, along an axis.
void tell_stored(const Graph& graph, const ShardAxesOptions& options, std::size_t axis, ShardOptions& along) {
    if (options.stored.empty() && options.reduced.empty()) return;
    for (const StoredTensor& stored : graph.stored()) {
        const auto given = options.stored.find(stored.name);
        along.stored.push_back(given == options.stored.end() ? std::nullopt : std::optional(given->second[axis]));
        const auto reduced = options.reduced.find(stored.name);
        along.reduced.push_back(reduced != options.reduced.end() && reduced->second[axis]);
    }
}

} // namespace

std::vector<AxisPlace> places_of(const OperatorStrategies& strategies, int tensor_rank) {
    std::vector<AxisPlace> places;
    for (std::size_t a = 0; a < strategies.axes.size(); ++a)
        places.push_back({axis_name(strategies, a), 0, strategies.axes[a]});
    for (std::size_t a = places.size(); a-- > 0; tensor_rank /= places[a].size)
        places[a].rank = tensor_rank % places[a].size;
    return places;
}

ShardedAxes shard_axes(const Graph& graph, int tensor_rank, const ShardAxesOptions& options) {
    ShardedAxes result{graph, {}, {}, {}, {}, {}, {}, {}};
    for (const StoredTensor& stored : graph.stored()) result.stored.push_back(TensorSlice::all_of(stored.type.shape));
    const bool names = !options.strategies.operators.empty() || !options.strategies.tensors.empty();
    const Asked asked(graph, options);
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) result.origins.push_back(static_cast<NodeId>(n));
    const std::vector<AxisPlace> places = places_of(options.strategies, tensor_rank);
    for (std::size_t a = 0; a < places.size(); ++a) {
        ShardOptions along{options.sequence_parallel, {}};
        for (const auto& [name, states] : options.inputs) along.inputs[name] = states[a];
        tell_stored(graph, options, a, along);
        if (names) asked.tell(a, result.origins, along);
        const bool more_axes = std::any_of(places.begin() + static_cast<std::ptrdiff_t>(a) + 1, places.end(),
                                           [](const AxisPlace& later) { return later.size > 1; });
        const Assignment assignment = default_assignment(result.graph, places[a], along);
        Sharded sharded = shard(result.graph, places[a], assignment, more_axes);
        std::vector<bool>& replicated = result.replicated.emplace_back();
        for (std::size_t s = 0; s < result.stored.size(); ++s) {
            replicated.push_back(places[a].size > 1 && sharded.stored[s].is_whole());
            result.stored[s] = result.stored[s].within(sharded.stored[s]);
        }
        for (NodeId& origin : sharded.origins)
            if (origin != NodeId::none) origin = result.origins[index(origin)];
        result.origins = std::move(sharded.origins);
        result.graph = std::move(sharded.graph);
        result.states.push_back(std::move(sharded.states));
        result.partial.push_back(std::move(sharded.partial));
        result.inputs.push_back(std::move(sharded.inputs));
        result.outputs.push_back(std::move(sharded.outputs));
    }
    return result;
}

TensorSlice owned_slice(const Shape& whole, const std::vector<Sharding>& states, const std::vector<AxisPlace>& places) {
    TensorSlice slice = TensorSlice::all_of(whole);
    for (std::size_t a = 0; a < states.size(); ++a) {
        if (!states[a].is_split()) continue;
        TensorSlice part = TensorSlice::all_of(slice.shape());
        part.dims[static_cast<std::size_t>(states[a].dim)] = states[a].parts[static_cast<std::size_t>(places[a].rank)];
        slice = slice.within(part);
    }
    return slice;
}

} // namespace tutti::sharding

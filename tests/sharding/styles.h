// Strategies of operators in the styles that people know, for any model: each operator by what its place in the model
// says.
#pragma once

#include "graph/loops.h"
#include "graph/passes.h"
#include "sharding/operator_strategies.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tutti::testing {

enum class Way { follow, everywhere, batch, sequence };

struct Style {
    std::vector<int> axes;
    std::function<Way(const sharding::OperatorName&, std::size_t axis)> way;
    std::function<bool(const std::string& tensor, std::size_t axis)> held = [](const std::string&, std::size_t) {
        return false;
    };
    bool keep_gathered = false, reduce_at_once = false;
};

inline bool is_attention(const std::string& source) {
    for (const char* part : {"attn", "ln_1", "input_layernorm", "attention"})
        if (source.find(part) != std::string::npos && source.find("post_attention") == std::string::npos) return true;
    return false;
}

// The loop that runs through a dimension of activations [batch, sequence, ...]; "follow" where there is none.
inline std::string loop_through(const Graph& graph, const Node& node, int dim) {
    const LoopDims dims = resolve_loops(*node.op, graph.input_types(node), graph.output_types(node), node.attributes);
    const Shape tokens = graph.shape(graph.inputs()[0]);
    auto is_activation = [&](const Shape& shape) {
        return shape.rank() >= 2 && shape[0] == tokens[0] && shape[1] == tokens[1];
    };
    const bool through_output = is_activation(graph.shape(node.outputs[0]));
    if (!through_output && (node.inputs.empty() || !is_activation(graph.shape(node.inputs[0])))) return "follow";
    const auto& dimension = (through_output ? dims.outputs : dims.inputs)[0][static_cast<std::size_t>(dim)];
    if (dimension.size() != 1 || dims.loops[static_cast<std::size_t>(dimension[0])].whole) return "follow";
    return dims.loops[static_cast<std::size_t>(dimension[0])].name;
}

inline sharding::OperatorStrategies choose(const Graph& model, const Style& style) {
    const Graph forward = eliminate_dead_code(eliminate_common_subexpressions(model));
    const std::vector<sharding::OperatorName> names = sharding::operator_names(forward);
    sharding::OperatorStrategies strategies{.axes = style.axes};
    std::set<sharding::OperatorName> seen;
    for (std::size_t n = 0; n < names.size(); ++n) {
        sharding::OperatorName name = names[n];
        name.source = sharding::layer_pattern(name.source);
        if (forward.nodes()[n].phase != Phase::forward || !seen.insert(name).second) continue;
        sharding::OperatorStrategy choice{name, {}, style.keep_gathered, style.reduce_at_once};
        for (std::size_t axis = 0; axis < style.axes.size(); ++axis) {
            const Way way = style.way(name, axis);
            if (way == Way::batch || way == Way::sequence)
                choice.split.push_back(loop_through(forward, forward.nodes()[n], way == Way::batch ? 0 : 1));
            else
                choice.split.emplace_back(way == Way::everywhere ? sharding::on_every_rank : sharding::follows);
        }
        strategies.operators.push_back(std::move(choice));
    }
    std::set<std::string> tensors;
    for (const StoredTensor& stored : forward.stored()) {
        sharding::TensorStrategy choice{sharding::layer_pattern(stored.name), {}};
        if (!tensors.insert(choice.name).second) continue;
        for (std::size_t axis = 0; axis < style.axes.size(); ++axis)
            choice.sharded.push_back(style.held(choice.name, axis));
        strategies.tensors.push_back(std::move(choice));
    }
    return strategies;
}

inline bool all_tensors(const std::string&, std::size_t) { return true; }

// Every rank has samples of its own; weights are sharded, and gathered for use.
inline Style by_batch(int ranks) {
    return {{ranks}, [](const sharding::OperatorName&, std::size_t) { return Way::batch; }, all_tensors};
}

// Attention that way, feed-forward networks by columns and rows, with the sequence split between.
inline Style mixed(int ranks) {
    return {{ranks},
            [](const sharding::OperatorName& name, std::size_t) {
                if (is_attention(name.source)) return Way::batch;
                return name.op == "add" && name.ordinal == 0 ? Way::batch : Way::follow;
            },
            [](const std::string& tensor, std::size_t) { return is_attention(tensor); }};
}

// Samples along the first axis, with weights spread; heads and columns along the second.
inline Style batch_and_heads(int outer, int inner) {
    return {{outer, inner},
            [](const sharding::OperatorName&, std::size_t axis) { return axis == 0 ? Way::batch : Way::follow; },
            [](const std::string&, std::size_t axis) { return axis == 0; }};
}

// The sequence is split everywhere but in attention, weights are gathered.
inline Style by_sequence(int ranks) {
    return {{ranks}, [](const sharding::OperatorName&, std::size_t) { return Way::sequence; }, all_tensors};
}

// Heads and columns, as without choices, but for the flags.
inline Style by_columns(int ranks, bool keep_gathered, bool reduce_at_once) {
    return {{ranks},
            [](const sharding::OperatorName&, std::size_t) { return Way::follow; },
            [](const std::string&, std::size_t) { return false; },
            keep_gathered,
            reduce_at_once};
}

// Heads and columns, and whatever they leave whole is sharded: norms, and biases that one rank adds.
inline Style all_sharded(std::vector<int> axes) {
    return {std::move(axes), [](const sharding::OperatorName&, std::size_t) { return Way::follow; }, all_tensors};
}

} // namespace tutti::testing

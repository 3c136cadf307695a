#include "graph/passes.h"

#include "base/error.h"
#include "graph/rewriter.h"

#include <map>
#include <tuple>

namespace tutti {

bool gathers_parameter(const Graph& graph, const Node& node) {
    return node.op->collective && graph.parameter_of(graph.value(node.inputs[0]).storage) != nullptr;
}

Graph eliminate_dead_code(const Graph& graph) {
    std::vector<bool> needed(graph.values().size(), false);
    for (const Output& output : graph.outputs()) needed[index(output.value)] = true;
    const auto nodes = graph.nodes();
    std::vector<bool> live(nodes.size(), false);
    for (std::size_t i = nodes.size(); i-- > 0;) {
        for (ValueId output : nodes[i].outputs)
            if (needed[index(output)]) live[i] = true;
        live[i] = live[i] || gathers_parameter(graph, nodes[i]);
        if (!live[i]) continue;
        for (ValueId input : nodes[i].inputs) needed[index(input)] = true;
    }
    Rewriter rewriter(graph);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (!live[i]) continue;
        rewriter.enter(nodes[i]);
        rewriter.copy(nodes[i], rewriter.renamed(nodes[i].inputs));
    }
    return rewriter.finish();
}

Graph eliminate_common_subexpressions(const Graph& graph) {
    using Key = std::tuple<std::string_view, std::vector<ValueId>, std::string, Phase>;
    std::map<Key, std::vector<ValueId>> seen;
    Rewriter rewriter(graph);
    for (const Node& node : graph.nodes()) {
        rewriter.enter(node);
        std::vector<ValueId> inputs = rewriter.renamed(node.inputs);
        std::string constants = to_string(node.attributes);
        if (is_random(*node.op, node.attributes)) constants += '@' + node.source;
        const auto [at, fresh] = seen.try_emplace(Key{node.op->name, inputs, constants, node.phase});
        if (fresh) {
            rewriter.copy(node, std::move(inputs));
            at->second = rewriter.renamed(node.outputs);
        } else {
            for (std::size_t i = 0; i < node.outputs.size(); ++i) rewriter.rename(node.outputs[i], at->second[i]);
        }
    }
    return rewriter.finish();
}

Graph materialise(const Graph& graph) {
    Rewriter rewriter(graph);
    std::map<std::pair<ValueId, Phase>, ValueId> copies; // one copy per pass serves all its readers
    for (const Node& node : graph.nodes()) {
        rewriter.enter(node);
        std::vector<ValueId> inputs = rewriter.renamed(node.inputs);
        for (ValueId& input : inputs) {
            const Value& value = rewriter.graph().value(input);
            if (node.op->view || accepted(node.op->accepts, value.type.shape, value.layout.strides)) continue;
            const auto [at, fresh] = copies.try_emplace({input, node.phase});
            if (fresh) at->second = rewriter.graph().add("contiguous", {input}, {}, node.source);
            input = at->second;
        }
        rewriter.copy(node, std::move(inputs));
    }
    return rewriter.finish();
}

Graph remove_dropout(const Graph& graph) {
    Rewriter rewriter(graph);
    for (const Node& node : graph.nodes()) {
        rewriter.enter(node);
        if (node.op->only_drops) {
            rewriter.rename(node.outputs[0], rewriter.renamed(node.inputs[0]));
            continue;
        }
        Attributes attributes = node.attributes;
        if (!node.op->drops.empty()) attributes.erase(node.op->drops);
        rewriter.copy(node, rewriter.renamed(node.inputs), std::move(attributes));
    }
    return rewriter.finish();
}

} // namespace tutti

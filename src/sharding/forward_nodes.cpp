#include "sharding/forward_nodes.h"

#include <algorithm>
#include <map>
#include <string>

namespace tutti::sharding {
namespace {

bool is_gradient_of(const Node& backward, const Node& forward) {
    return backward.op == forward.op || backward.op->gradient_of == forward.op->name;
}

bool shares_a_value(const Node& backward, const Node& forward) {
    return std::ranges::any_of(backward.inputs, [&](ValueId value) {
        return std::ranges::find(forward.inputs, value) != forward.inputs.end() ||
               std::ranges::find(forward.outputs, value) != forward.outputs.end();
    });
}

} // namespace

std::vector<NodeId> forward_nodes(const Graph& graph) {
    std::vector<NodeId> result(graph.nodes().size(), NodeId::none);
    std::map<std::string_view, std::vector<NodeId>> by_source;
    // Backward nodes with several candidates, by source and operator. Gradients are computed last node first.
    std::map<std::pair<std::string_view, std::string_view>, std::vector<std::size_t>> unclear;
    std::map<std::size_t, std::vector<NodeId>> candidates;
    for (std::size_t i = 0; i < result.size(); ++i) {
        const Node& node = graph.nodes()[i];
        if (node.phase == Phase::forward) {
            result[i] = static_cast<NodeId>(i);
            by_source[node.source].push_back(result[i]);
            continue;
        }
        if (node.op->arithmetic == Arithmetic::sum) continue;
        std::vector<NodeId> fitting;
        for (NodeId id : by_source[node.source])
            if (is_gradient_of(node, graph.node(id))) fitting.push_back(id);
        std::vector<NodeId> sharing;
        for (NodeId id : fitting)
            if (shares_a_value(node, graph.node(id))) sharing.push_back(id);
        if (sharing.size() == 1 || fitting.size() == 1) {
            result[i] = sharing.size() == 1 ? sharing[0] : fitting[0];
        } else if (!fitting.empty()) {
            unclear[{node.source, node.op->name}].push_back(i);
            candidates[i] = std::move(fitting);
        }
    }
    for (const auto& [what, nodes] : unclear)
        for (std::size_t k = 0; k < nodes.size(); ++k)
            if (const std::vector<NodeId>& fitting = candidates.at(nodes[k]); fitting.size() == nodes.size())
                result[nodes[k]] = fitting[fitting.size() - 1 - k];
    return result;
}

} // namespace tutti::sharding

#include "compile/direct_gradients.h"

#include <algorithm>
#include <map>
#include <set>

namespace tutti::compile {

std::vector<bool> direct_gradients(const Graph& graph, const NodeOrder& order, const StoredPlaces& places,
                                   DType gradients, const std::vector<bool>& cleared) {
    std::map<std::size_t, std::vector<const Output*>> contributions; // per node
    std::map<std::int32_t, std::int32_t> earliest;                   // per stored tensor, a position
    auto stored_of = [&](const Output& output) { return graph.parameter_of(output.parameter)->stored; };
    for (const Output& output : graph.outputs()) {
        if (output.parameter == ValueId::none) continue;
        const std::size_t i = index(graph.value(output.value).producer);
        contributions[i].push_back(&output);
        const auto at = earliest.try_emplace(stored_of(output), order.position[i]).first;
        at->second = std::min(at->second, order.position[i]);
    }
    // The operator can add into the value, which has no other use, and the kernel can write the parameter's layout.
    // Where gradients are kept narrower than they are computed, it rounds them.
    auto may_be_direct = [&](const Operator& op, const Output& output) {
        const Value& parameter = graph.value(output.parameter);
        return accepted(op.accumulates_into, parameter.type.shape, parameter.layout.strides) &&
               order.uses[index(output.value)] == 0 && order.contributions[index(output.value)] == 1 &&
               size_of(gradients) <= size_of(graph.type(output.value).dtype);
    };
    auto is_cleared = [&](const Output& output) {
        return !cleared.empty() &&
               cleared[static_cast<std::size_t>(places.chunk_of(*graph.parameter_of(output.parameter)))];
    };
    std::vector<bool> direct(graph.values().size(), false);
    for (const auto& [i, outputs] : contributions) {
        const Node& node = graph.nodes()[i];
        std::size_t added = 0;
        for (std::size_t o = 0; o < node.outputs.size(); ++o) added += node.op->accumulates(o);
        // Where there are several, each has to be the first to write its stored tensor, or they would have to differ in
        // whether they add.
        std::set<std::int32_t> tensors;
        const bool fit = std::ranges::all_of(outputs, [&](const Output* output) {
            const auto o = std::ranges::find(node.outputs, output->value) - node.outputs.begin();
            const bool first = earliest.at(stored_of(*output)) == order.position[i];
            return node.op->accumulates(static_cast<std::size_t>(o)) && may_be_direct(*node.op, *output) &&
                   (added == 1 || (first && tensors.insert(stored_of(*output)).second)) &&
                   is_cleared(*output) == is_cleared(*outputs.front());
        });
        if (!fit || outputs.size() != added) continue;
        for (const Output* output : outputs) direct[index(output->value)] = true;
    }
    return direct;
}

} // namespace tutti::compile

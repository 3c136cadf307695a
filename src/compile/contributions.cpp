#include "compile/contributions.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::compile {
namespace {

bool is_same_view(const Graph& graph, ValueId a, ValueId b) {
    if (a == b) return true;
    const Value &x = graph.value(a), &y = graph.value(b);
    return x.layout == y.layout && x.type == y.type;
}

// Two different views of one stored tensor may only overwrite if they share no element.
void check_disjoint(const Graph& graph, ValueId a, ValueId b) {
    std::vector<bool> taken(static_cast<std::size_t>(
        graph.stored()[static_cast<std::size_t>(graph.parameter_of(a)->stored)].type.elements()));
    for (ValueId view : {a, b}) {
        const Value& value = graph.value(view);
        Shape position = value.type.shape;
        for (std::int64_t n = 0; n < value.type.elements(); ++n) {
            std::int64_t rest = n, element = value.layout.offset;
            for (int d = position.rank() - 1; d >= 0; --d) {
                element += rest % value.type.shape[d] * value.layout.strides[d];
                rest /= value.type.shape[d];
            }
            TUTTI_CHECK(!taken[static_cast<std::size_t>(element)], "two views of {} overlap", value.name);
            taken[static_cast<std::size_t>(element)] = true;
        }
    }
}

} // namespace

const std::vector<std::size_t>& Contributions::of(std::size_t node) const {
    static const std::vector<std::size_t> none;
    const auto found = of_node.find(node);
    return found == of_node.end() ? none : found->second;
}

Contributions find_contributions(const Graph& graph, std::span<const std::size_t> order, const StoredPlaces& places,
                                 const std::vector<bool>& cleared) {
    Contributions found;
    for (std::size_t o = 0; o < graph.outputs().size(); ++o) {
        const Output& output = graph.outputs()[o];
        if (output.parameter != ValueId::none) found.of_node[index(graph.value(output.value).producer)].push_back(o);
    }
    std::map<std::int32_t, std::vector<ValueId>> views; // per stored tensor: parameters seen so far
    found.first.assign(graph.outputs().size(), false);
    for (std::size_t node : order)
        for (std::size_t o : found.of(node)) {
            const ValueId parameter = graph.outputs()[o].parameter;
            const std::int32_t stored = graph.parameter_of(parameter)->stored;
            const std::int32_t chunk = places.of(stored).chunk;
            found.last_of_chunk[chunk] = node;
            std::vector<ValueId>& seen = views[stored];
            const bool known =
                std::ranges::any_of(seen, [&](ValueId other) { return is_same_view(graph, other, parameter); });
            if (!known) {
                for (ValueId other : seen) check_disjoint(graph, other, parameter);
                seen.push_back(parameter);
            }
            found.first[o] = !known && !cleared[static_cast<std::size_t>(chunk)];
        }
    return found;
}

} // namespace tutti::compile

#include "sharding/operator_strategies.h"

#include "base/counted.h"
#include "base/error.h"
#include "formats/json.h"
#include "graph/loops.h"
#include "graph/passes.h"
#include "sharding/forward_nodes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::sharding {
namespace {

constexpr std::size_t most_axes = 8, most_names = 100'000;

bool is_number(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Cuts off what stands before the first dot.
std::string_view next_part(std::string_view& name) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    name.remove_prefix(std::min(dot + 1, name.size()));
    return part;
}

// Names come from files.
std::string text(const OperatorName& name) {
    return fmt::format("{} {} of {}", formats::in_quotes(name.op), name.ordinal, formats::in_quotes(name.source));
}

void is_per_axis(std::size_t count, const std::string& what, const OperatorStrategies& strategies) {
    if (count != strategies.axes.size())
        fail("strategies say of {} what it does along {} axes; the tensor axis is {}: {}", what, count,
             strategies.axes.size(), axes_text(strategies));
}

bool is_loop(std::string_view word) { return word != on_every_rank && word != on_partial_sums && word != follows; }

} // namespace

std::string axes_text(const OperatorStrategies& strategies) {
    return fmt::format("{}", fmt::join(strategies.axes, " x "));
}

std::string axis_name(const OperatorStrategies& strategies, std::size_t axis) {
    return strategies.axes.size() < 2 ? "tensor" : fmt::format("tensor.{}", axis);
}

void check(const OperatorStrategies& strategies, int tensor) {
    std::int64_t product = 1;
    if (strategies.axes.empty() || strategies.axes.size() > most_axes)
        fail("strategies are for {} axes; the tensor axis may be from 1 to {}", strategies.axes.size(), most_axes);
    for (int size : strategies.axes) {
        if (size < 1 || size > tensor)
            fail("strategies have an axis of {}; the mesh has tensor={}", counted(size, "rank"), tensor);
        product *= size; // at most 8 factors of a mesh's axis, and stopped where it is larger than that
        if (product > tensor) break;
    }
    if (product != tensor)
        fail("strategies are for the axes {}, which make {} ranks or more; the mesh has tensor={}",
             axes_text(strategies), product, tensor);
    if (strategies.operators.size() + strategies.tensors.size() > most_names)
        fail("strategies name {} operators and tensors; {} are the most",
             strategies.operators.size() + strategies.tensors.size(), most_names);
    std::set<OperatorName> operators;
    for (const OperatorStrategy& choice : strategies.operators) {
        if (choice.name.ordinal < 0) fail("strategies name {}; they are counted from 0", text(choice.name));
        is_per_axis(choice.split.size(), text(choice.name), strategies);
        if (!operators.insert(choice.name).second) fail("strategies name {} twice", text(choice.name));
    }
    std::set<std::string> tensors;
    for (const TensorStrategy& choice : strategies.tensors) {
        is_per_axis(choice.sharded.size(), formats::in_quotes(choice.name), strategies);
        if (!tensors.insert(choice.name).second)
            fail("strategies name the tensor {} twice", formats::in_quotes(choice.name));
    }
}

void check(const OperatorStrategies& strategies, const Graph& model) {
    const Graph forward = eliminate_dead_code(eliminate_common_subexpressions(model));
    const std::vector<OperatorName> names = operator_names(forward);
    for (const OperatorStrategy& choice : strategies.operators) {
        bool found = false;
        std::set<std::string> there;
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (!fits(choice.name.source, names[i].source)) continue;
            there.insert(names[i].op);
            if (names[i].op != choice.name.op || names[i].ordinal != choice.name.ordinal) continue;
            found = true;
            const Node& node = forward.nodes()[i];
            const std::vector<Loop> loops =
                resolve_loops(*node.op, forward.input_types(node), forward.output_types(node), node.attributes).loops;
            for (const std::string& word : choice.split)
                if (is_loop(word) && std::ranges::find(loops, word, &Loop::name) == loops.end()) {
                    std::vector<std::string> known;
                    for (const Loop& loop : loops) known.push_back(loop.name);
                    fail("strategies split {} by {}; its loops are {}", text(choice.name), formats::in_quotes(word),
                         fmt::join(known, ", "));
                }
        }
        if (!found)
            fail("strategies name {}, which is not in the model{}", text(choice.name),
                 there.empty() ? "" : fmt::format(": there are {}", fmt::join(there, ", ")));
    }
    for (const TensorStrategy& choice : strategies.tensors)
        if (std::ranges::none_of(forward.stored(),
                                 [&](const StoredTensor& one) { return fits(choice.name, one.name); }))
            fail("strategies name the tensor {}, which is not in the model", formats::in_quotes(choice.name));
}

std::string layer_pattern(std::string_view name) {
    std::string pattern;
    while (true) {
        const bool last = name.find('.') == std::string_view::npos;
        const std::string_view part = next_part(name);
        pattern += is_number(part) ? "*" : part;
        if (last) return pattern;
        pattern += '.';
    }
}

bool fits(std::string_view pattern, std::string_view name) {
    if (std::ranges::count(pattern, '.') != std::ranges::count(name, '.')) return false;
    while (!pattern.empty() || !name.empty()) {
        const std::string_view wanted = next_part(pattern), part = next_part(name);
        if (wanted != part && !(wanted == "*" && is_number(part))) return false;
    }
    return true;
}

std::vector<OperatorName> operator_names(const Graph& graph, const Graph* whole) {
    // Per source, operator and block: how many of the source and operator stand before the block.
    using InBlock = std::tuple<std::string, std::string_view, std::int32_t>;
    std::map<InBlock, int> before;
    if (whole != nullptr) {
        std::map<std::pair<std::string, std::string_view>, int> counts;
        for (const Node& node : whole->nodes())
            if (node.phase == Phase::forward)
                before.try_emplace({node.source, node.op->name, node.block}, counts[{node.source, node.op->name}]++);
    }
    std::map<InBlock, int> seen;
    std::vector<OperatorName> names(graph.nodes().size());
    for (std::size_t i = 0; i < names.size(); ++i) {
        const Node& node = graph.nodes()[i];
        if (node.phase != Phase::forward) continue;
        const InBlock key{node.source, node.op->name, whole == nullptr ? -1 : node.block};
        const auto offset = before.find(key);
        names[i] = {node.source, std::string(node.op->name),
                    seen[key]++ + (offset == before.end() ? 0 : offset->second)};
    }
    const std::vector<NodeId> forward = forward_nodes(graph);
    for (std::size_t i = 0; i < names.size(); ++i)
        if (graph.nodes()[i].phase != Phase::forward && forward[i] != NodeId::none) names[i] = names[index(forward[i])];
    return names;
}

const OperatorStrategy* strategy_for(const OperatorStrategies& strategies, const OperatorName& name) {
    const OperatorStrategy* found = nullptr;
    for (const OperatorStrategy& choice : strategies.operators) {
        if (choice.name == name) return &choice;
        if (found == nullptr && choice.name.op == name.op && choice.name.ordinal == name.ordinal &&
            fits(choice.name.source, name.source))
            found = &choice;
    }
    return found;
}

const TensorStrategy* strategy_for(const OperatorStrategies& strategies, std::string_view tensor) {
    const TensorStrategy* found = nullptr;
    for (const TensorStrategy& choice : strategies.tensors) {
        if (choice.name == tensor) return &choice;
        if (found == nullptr && fits(choice.name, tensor)) found = &choice;
    }
    return found;
}

} // namespace tutti::sharding

#include "sharding/strategy.h"

#include "graph/loops.h"

#include <algorithm>

namespace tutti::sharding {
namespace {

// More ranges than this in one part of a dimension are not worth having: they are gathered and scattered one by one.
constexpr std::int64_t most_ranges = 1024;

using Operand = std::vector<LoopDims::Dimension>;

// A dimension that a loop strides through, as [outer, size of the loop, inner].
struct Factor {
    std::int64_t outer = 1, size = 1, inner = 1;

    Factor(const LoopDims& dims, const LoopDims::Dimension& dimension, int loop) {
        bool after = false; // factors are slowest first
        for (int factor : dimension) {
            const std::int64_t extent = dims.loops[factor].size;
            if (factor == loop)
                size = extent, after = true;
            else
                (after ? inner : outer) *= extent;
        }
    }

    // The dimension's indices for some of the loop's. Nothing where they are too many ranges.
    std::optional<Ranges> indices(const Ranges& loop) const {
        if (outer * static_cast<std::int64_t>(loop.size()) > most_ranges) return std::nullopt;
        Ranges all;
        for (std::int64_t o = 0; o < outer; ++o)
            for (const Range& range : shifted(scaled(loop, inner), o * size * inner)) all.push_back(range);
        return joined(all, {});
    }
    std::optional<Parts> indices(const Parts& loop) const {
        Parts all;
        for (const Ranges& ranges : loop) {
            auto some = indices(ranges);
            if (!some) return std::nullopt;
            all.push_back(std::move(*some));
        }
        return all;
    }
    // The reverse; nothing where the parts are not those of any parts of the loop.
    std::optional<Parts> loop_parts(const Parts& dimension) const {
        Parts result;
        for (const Ranges& ranges : dimension) {
            Ranges loop;
            for (const Range& range : within(ranges, {0, size * inner})) {
                if (range.begin % inner != 0 || range.end % inner != 0) return std::nullopt;
                loop.push_back({range.begin / inner, range.end / inner});
            }
            result.push_back(std::move(loop));
        }
        return indices(result) == dimension ? std::optional(result) : std::nullopt;
    }
};

// ---- Operators whose one operand is pieces of another, one behind the other. Loop dims call the dimension whole; yet
// a part of it is a part of each piece.
struct Join {
    Side side = Side::inputs;  // of the operand that has it all
    int dim = 0, loop = 0;     // in it
    std::vector<Range> pieces; // where each operand of the other side lies in it
};

std::optional<Join> join_of(const Graph& graph, const Node& node, const LoopDims& dims) {
    if (!node.op->pieces) return std::nullopt;
    // A rank's slice along another axis begins elsewhere than the other ranks', which have to come to the same
    // strategy.
    if (node.attributes.has("axis")) return std::nullopt;
    const bool takes_apart = node.op->pieces->takes_apart;
    const Shape& all = graph.shape(takes_apart ? node.inputs[0] : node.outputs[0]);
    const std::int64_t given = node.attributes.integer("dim");
    Join join{
        takes_apart ? Side::inputs : Side::outputs, static_cast<int>(given < 0 ? given + all.rank() : given), 0, {}};
    join.loop = (takes_apart ? dims.inputs : dims.outputs)[0][join.dim][0];
    std::int64_t begin = node.attributes.integer("start", 0);
    for (ValueId piece : takes_apart ? node.outputs : node.inputs) {
        join.pieces.push_back({begin, begin + graph.shape(piece)[join.dim]});
        begin = join.pieces.back().end;
    }
    return join;
}

std::optional<OperandStates> placement_of_join(const Join& join, const Strategy& strategy) {
    OperandStates result;
    auto& pieces = join.side == Side::inputs ? result.outputs : result.inputs;
    (join.side == Side::inputs ? result.inputs : result.outputs).push_back(Sharding::split(join.dim, strategy.parts));
    for (const Range& piece : join.pieces) {
        Parts parts;
        for (const Ranges& ranges : strategy.parts) parts.push_back(within(ranges, piece));
        if (!divides(parts, piece.size())) return std::nullopt; // a rank without any of it
        pieces.push_back(Sharding::split(join.dim, std::move(parts)));
    }
    return result;
}

// The parts of the whole from those of its pieces; slices leave out some of it, so they do not tell.
std::optional<Parts> parts_of_join(const Join& join, std::span<const Sharding> pieces, std::int64_t size) {
    Parts parts;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (!pieces[i].is_split() || pieces[i].dim != join.dim) return std::nullopt;
        parts.resize(pieces[i].parts.size());
        for (std::size_t r = 0; r < parts.size(); ++r)
            parts[r] = joined(parts[r], shifted(pieces[i].parts[r], join.pieces[i].begin));
    }
    return divides(parts, size) ? std::optional(parts) : std::nullopt;
}

// ---- Loops that are whole for a kernel, but not for ranks that combine what they have.

// A product's sum over parts of k is partial; one of the ranks adds the bias.
bool is_biased_matmul(const Node& node, const Loop& loop) {
    const auto& product = node.op->product;
    return product && node.inputs.size() > product->bias && loop.name == product->in_features;
}

// The loss is computed from statistics of each part of the classes.
bool is_classes(const Node& node, const Loop& loop) { return node.op->loss && loop.name == node.op->loss->classes; }

// Whether the operator has to know where its part begins. Then it can be only one range.
bool depends_on_place(const Graph& graph, const Node& node, const Loop& loop) {
    if (is_classes(node, loop)) return true;
    if (!node.op->part || loop.size < 2) return false;
    const std::vector<TensorType> inputs = graph.input_types(node);
    return node.op->part(inputs, node.attributes, loop.name, 0, 1) !=
           node.op->part(inputs, node.attributes, loop.name, 1, 1);
}

std::optional<OperandStates> placement_of_partial(const Node& node, const Strategy& strategy) {
    const std::size_t inputs = node.inputs.size();
    const std::uint64_t all = (std::uint64_t{1} << inputs) - 1, taken = strategy.partial;
    const bool legal = inputs < 64 && ((node.op->linear == Linear::first && taken == 1) ||
                                       (node.op->linear == Linear::either && (taken == 1 || taken == 2)) ||
                                       (node.op->linear == Linear::joint && taken == all));
    if (!legal) return std::nullopt;
    OperandStates result;
    for (std::size_t i = 0; i < inputs; ++i)
        result.inputs.push_back(strategy.takes_partial(i) ? Sharding::partial() : Sharding{});
    result.outputs.resize(node.outputs.size(), Sharding::partial());
    return result;
}

std::optional<OperandStates> placement_of_loop(const Graph& graph, const Node& node, const LoopDims& dims,
                                               const Strategy& strategy) {
    const Loop& loop = dims.loops[strategy.loop];
    if (loop.whole && !is_biased_matmul(node, loop) && !is_classes(node, loop)) return std::nullopt;
    if (!std::ranges::all_of(strategy.parts, [](const Ranges& ranges) { return ranges.size() == 1; }) &&
        depends_on_place(graph, node, loop))
        return std::nullopt;
    OperandStates result;
    auto place = [&](const std::vector<Operand>& operands, const Sharding& missing, std::vector<Sharding>& into) {
        for (const Operand& operand : operands) {
            const int dim = LoopDims::dimension_of(operand, strategy.loop);
            if (dim < 0) {
                into.push_back(missing);
                continue;
            }
            auto parts = Factor(dims, operand[dim], strategy.loop).indices(strategy.parts);
            if (!parts) return false;
            into.push_back(Sharding::split(dim, std::move(*parts)));
        }
        return true;
    };
    // Ranks that have parts of the classes join their statistics: the results are the same everywhere.
    const Sharding missing = is_classes(node, loop) ? Sharding{} : Sharding::partial(loop.combine);
    if (!place(dims.inputs, {}, result.inputs) || !place(dims.outputs, missing, result.outputs)) return std::nullopt;
    return result;
}

OperandStates everything_everywhere(const Node& node) {
    return {std::vector<Sharding>(node.inputs.size()), std::vector<Sharding>(node.outputs.size())};
}

} // namespace

std::optional<OperandStates> placement_of(const Graph& graph, const Node& node, const Strategy& strategy, int size) {
    if (strategy.loop < 0)
        return strategy.partial == 0 ? everything_everywhere(node) : placement_of_partial(node, strategy);
    const LoopDims dims = loops_of(graph, node);
    if (strategy.partial != 0 || static_cast<std::size_t>(strategy.loop) >= dims.loops.size() ||
        strategy.parts.size() != static_cast<std::size_t>(size) ||
        !divides(strategy.parts, dims.loops[strategy.loop].size))
        return std::nullopt;
    const std::optional<Join> join = join_of(graph, node, dims);
    if (join && join->loop == strategy.loop) return placement_of_join(*join, strategy);
    return placement_of_loop(graph, node, dims, strategy);
}

Attributes local_attributes(const Graph& graph, const Node& node, const Strategy& strategy, int rank) {
    Attributes attributes = node.attributes;
    if (strategy.loop < 0) return attributes;
    const LoopDims dims = loops_of(graph, node);
    const Ranges& own = strategy.parts[rank];
    const std::optional<Join> join = join_of(graph, node, dims);
    if (join && join->loop == strategy.loop) {
        auto held = [&](Range window) { return count(within(own, window)); };
        if (attributes.has("start")) attributes.set("start", held({0, join->pieces[0].begin}));
        std::vector<std::int64_t> sizes;
        for (const Range& piece : join->pieces) sizes.push_back(held(piece));
        node.op->pieces->resize(attributes, count(own), sizes);
        return attributes;
    }
    if (!node.op->part) return attributes;
    return node.op->part(graph.input_types(node), attributes, dims.loops[strategy.loop].name, own[0].begin, count(own));
}

std::vector<Strategy> strategies_of(const Graph& graph, NodeId id, int size) {
    const Node& node = graph.node(id);
    const LoopDims dims = loops_of(graph, node);
    const std::optional<Join> join = join_of(graph, node, dims);
    std::vector<Strategy> result = {{}};
    for (std::size_t l = 0; l < dims.loops.size(); ++l) {
        Strategy strategy = Strategy::split(static_cast<int>(l), even_parts(dims.loops[l].size, 1, size));
        if (join && join->loop == strategy.loop && join->pieces.size() > 1) { // of every piece its part
            std::vector<Sharding> pieces;
            for (const Range& piece : join->pieces)
                pieces.push_back(Sharding::split(join->dim, even_parts(piece.size(), 1, size)));
            strategy.parts = parts_of_join(*join, pieces, dims.loops[l].size).value_or(Parts{});
        }
        if (placement_of(graph, node, strategy, size)) result.push_back(std::move(strategy));
    }
    return result;
}

std::vector<Strategy> strategies_with(const Graph& graph, const Node& node, Side side, std::size_t operand,
                                      std::span<const Sharding> states, int size) {
    const Sharding& state = states[operand];
    std::vector<Strategy> result;
    if (!state.is_split()) return result;
    const LoopDims dims = loops_of(graph, node);
    auto offer = [&](int loop, std::optional<Parts> parts) {
        if (!parts) return;
        Strategy strategy = Strategy::split(loop, std::move(*parts));
        const auto placement = placement_of(graph, node, strategy, size);
        if (placement && (side == Side::inputs ? placement->inputs : placement->outputs)[operand] == state)
            result.push_back(std::move(strategy));
    };
    const std::optional<Join> join = join_of(graph, node, dims);
    if (join && join->dim == state.dim) {
        const std::int64_t whole = dims.loops[join->loop].size;
        offer(join->loop, side == join->side ? std::optional(state.parts) : parts_of_join(*join, states, whole));
        return result;
    }
    const LoopDims::Dimension& dimension = (side == Side::inputs ? dims.inputs : dims.outputs)[operand][state.dim];
    for (int loop : dimension) offer(loop, Factor(dims, dimension, loop).loop_parts(state.parts));
    return result;
}

} // namespace tutti::sharding

// What the ranks along an axis of the mesh do together. These nodes are made when a graph is sharded
// (sharding/shard.h), after differentiation, so they have no gradients; no kernel runs, groups of ranks carry them out
// (comm/group.h). Along another axis they are like other operators: whatever they do not gather or scatter may be
// split.
//
// `parts` says which indices of a dimension every rank has (base/parts.h), and `rank` which rank this one is.
#include "base/parts.h"
#include "ops/families.h"

#include <set>

namespace tutti::ops {
namespace {

std::string loops_around(int rank, const std::set<int>& whole_before, const std::set<int>& whole_after) {
    std::string from, to;
    for (int d = 0; d < rank; ++d) {
        from += whole_before.contains(d) ? fmt::format(" x{}!", d) : fmt::format(" l{}", d);
        to += whole_after.contains(d) ? fmt::format(" y{}!", d) : fmt::format(" l{}", d);
    }
    return from + " -> " + to;
}

int dim_of(std::string_view op, std::string_view name, Types in, const Attributes& a) {
    return normalise_dim(op, a.integer(name), in[0].shape.rank());
}

// What this rank has of a dimension, and all of it.
struct Share {
    std::int64_t held, whole;
};

Share share_of(std::string_view op, std::string_view name, Types in, const Attributes& a) {
    const Parts parts = decode_parts(a.integers(name));
    const std::int64_t rank = a.integer("rank"), whole = count(parts);
    expect(rank >= 0 && rank < static_cast<std::int64_t>(parts.size()) && divides(parts, whole), op, in,
           fmt::format("{} does not give every rank its part", name));
    return {count(parts[static_cast<std::size_t>(rank)]), whole};
}

// The input's dimension grows from this rank's part to the whole, or the other way round.
void resize(std::string_view op, Types in, TensorType& type, int dim, std::int64_t from, std::int64_t to) {
    expect(type.shape[dim] == from, op, in, fmt::format("dimension {} is not {}", dim, from));
    type.shape[dim] = to;
}

void expect_combine(std::string_view op, Types in, const Attributes& a) {
    expect(a.text("combine") == "sum" || a.text("combine") == "maximum", op, in,
           fmt::format("combines by sum or maximum, not by {}", a.text("combine")));
}

// all_reduce(x) {axis, combine: sum or maximum}
Operator all_reduce() {
    return {
        .name = "all_reduce",
        .loops = loops("r* -> r*"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("all_reduce", in, 1, 1);
            expect_combine("all_reduce", in, a);
            return {in[0]};
        },
        .cost = streaming(0),
        .accepts = Accepts::dense,
        .overwrites = 0,
        .collective = AxisCollective::all_reduce,
    };
}

// all_gather(x) {axis, dim, parts, rank}: every rank's part of dim, put where it belongs
Operator all_gather() {
    return {
        .name = "all_gather",
        .loops =
            [](Types in, const Attributes& a) {
                const int dim = dim_of("all_gather", "dim", in, a);
                return loops_around(in[0].shape.rank(), {dim}, {dim});
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("all_gather", in, 1, 1);
            const Share share = share_of("all_gather", "parts", in, a);
            TensorType out = in[0];
            resize("all_gather", in, out, dim_of("all_gather", "dim", in, a), share.held, share.whole);
            return {out};
        },
        .cost = streaming(0),
        .accepts = Accepts::dense,
        .collective = AxisCollective::all_gather,
    };
}

// reduce_scatter(x) {axis, dim, parts, rank, combine}: this rank's part of dim, of all ranks' x combined
Operator reduce_scatter() {
    return {
        .name = "reduce_scatter",
        .loops =
            [](Types in, const Attributes& a) {
                const int dim = dim_of("reduce_scatter", "dim", in, a);
                return loops_around(in[0].shape.rank(), {dim}, {dim});
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("reduce_scatter", in, 1, 1);
            expect_combine("reduce_scatter", in, a);
            const Share share = share_of("reduce_scatter", "parts", in, a);
            TensorType out = in[0];
            resize("reduce_scatter", in, out, dim_of("reduce_scatter", "dim", in, a), share.whole, share.held);
            return {out};
        },
        .cost = streaming(0),
        .accepts = Accepts::dense,
        .collective = AxisCollective::reduce_scatter,
    };
}

// all_to_all(x) {axis, gather_dim, gather_parts, scatter_dim, scatter_parts, rank}: from a part of gather_dim to a part
// of scatter_dim; both parts are in the order of ranks
Operator all_to_all() {
    return {
        .name = "all_to_all",
        .loops =
            [](Types in, const Attributes& a) {
                const std::set<int> dims = {dim_of("all_to_all", "gather_dim", in, a),
                                            dim_of("all_to_all", "scatter_dim", in, a)};
                return loops_around(in[0].shape.rank(), dims, dims);
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("all_to_all", in, 1, 1);
            const int gathered = dim_of("all_to_all", "gather_dim", in, a),
                      scattered = dim_of("all_to_all", "scatter_dim", in, a);
            expect(gathered != scattered, "all_to_all", in, "gathers one dimension and scatters another");
            const Share gather = share_of("all_to_all", "gather_parts", in, a),
                        scatter = share_of("all_to_all", "scatter_parts", in, a);
            TensorType out = in[0];
            resize("all_to_all", in, out, gathered, gather.held, gather.whole);
            resize("all_to_all", in, out, scattered, scatter.whole, scatter.held);
            return {out};
        },
        .cost = streaming(0),
        .accepts = Accepts::dense,
        .collective = AxisCollective::all_to_all,
    };
}

} // namespace

std::vector<Operator> collective_operators() { return {all_reduce(), all_gather(), reduce_scatter(), all_to_all()}; }

} // namespace tutti::ops

// Operators that take a tensor apart along a dimension or put it together. slice and split are views: no kernel runs.
#include "ops/families.h"

namespace tutti::ops {
namespace {

// Loops of operators that work along one dimension, which may not be split.
std::string along(int dim, int rank) {
    std::string text;
    for (int d = 0; d < rank; ++d) text += d == dim ? fmt::format(" x{}!", d) : fmt::format(" l{}", d);
    return text;
}
std::string along_other(int dim, int rank, std::size_t operand) {
    std::string text;
    for (int d = 0; d < rank; ++d) text += d == dim ? fmt::format(" y{}!", operand) : fmt::format(" l{}", d);
    return text;
}

using Sizes = std::span<const std::int64_t>;

int dim_of(std::string_view op, const TensorType& type, const Attributes& a) {
    return normalise_dim(op, a.integer("dim"), type.shape.rank());
}

Operator slice() {
    return {
        .name = "slice", // {dim, start, size}
        .loops =
            [](Types in, const Attributes& a) {
                const int dim = dim_of("slice", in[0], a), rank = in[0].shape.rank();
                return along(dim, rank) + " -> " + along_other(dim, rank, 0);
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("slice", in, 1, 1);
            const int dim = dim_of("slice", in[0], a);
            const std::int64_t start = a.integer("start"), size = a.integer("size");
            expect(start >= 0 && size > 0 && start <= in[0].shape[dim] - size, "slice", in,
                   fmt::format("cannot take {} elements from {} of dimension {}", size, start, dim));
            TensorType out = in[0];
            out.shape[dim] = size;
            return {out};
        },
        .gradient =
            [](GradientBuilder& g) {
                const int dim = dim_of("slice", g.type(g.input(0)), g.attributes());
                g.set(0, g.emit("slice_gradient", {g.gradient()},
                                {{"dim", std::int64_t{dim}},
                                 {"start", g.attributes().integer("start")},
                                 {"size", g.shape(g.input(0))[dim]}}));
            },
        .cost = [](Types, Types, const Attributes&) { return Cost{}; },
        .view = [](const TensorType& in, const Layout& layout,
                   const Attributes& a) -> std::optional<std::vector<Layout>> {
            Layout result = layout;
            result.offset += layout.strides[dim_of("slice", in, a)] * a.integer("start");
            return std::vector{result};
        },
        .linear = Linear::first,
        .pieces = Pieces{.takes_apart = true,
                         .resize = [](Attributes& a, std::int64_t, Sizes pieces) { a.set("size", pieces[0]); }},
    };
}

// slice_gradient(dy) {dim, start, size} -> zeros of that size along dim, with dy from start
Operator slice_gradient() {
    return {
        .name = "slice_gradient",
        .loops =
            [](Types in, const Attributes& a) {
                const int dim = dim_of("slice_gradient", in[0], a), rank = in[0].shape.rank();
                return along_other(dim, rank, 0) + " -> " + along(dim, rank);
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("slice_gradient", in, 1, 1);
            TensorType out = in[0];
            out.shape[dim_of("slice_gradient", in[0], a)] = a.integer("size");
            return {out};
        },
        .cost = streaming(0),
        .accepts = Accepts::strided,
        .linear = Linear::first,
        .gradient_of = "slice",
        .pieces = Pieces{.resize = [](Attributes& a, std::int64_t whole, Sizes) { a.set("size", whole); }},
    };
}

// What nobody reads has no gradient: zeros.
void split_gradient(GradientBuilder& g) {
    const TensorType x = g.type(g.input(0));
    const int dim = dim_of("split", x, g.attributes());
    const auto& sizes = g.attributes().integers("sizes");
    std::vector<ValueId> parts;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (g.has_gradient(i)) {
            parts.push_back(g.gradient(i));
            continue;
        }
        Shape shape = x.shape;
        shape[dim] = sizes[i];
        parts.push_back(g.emit(
            "fill", {}, {{"dtype", std::string(name_of(x.dtype))}, {"shape", to_vector(shape)}, {"value", 0.0}}));
    }
    g.set(0, g.emit("concat", parts, {{"dim", std::int64_t{dim}}}));
}

Operator split() {
    return {
        .name = "split", // {dim, sizes}
        .loops =
            [](Types in, const Attributes& a) {
                const int dim = dim_of("split", in[0], a), rank = in[0].shape.rank();
                std::string text = along(dim, rank) + " ->";
                for (std::size_t i = 0; i < a.integers("sizes").size(); ++i)
                    text += (i ? "," : "") + along_other(dim, rank, i);
                return text;
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("split", in, 1, 1);
            const int dim = dim_of("split", in[0], a);
            std::vector<TensorType> outs;
            std::int64_t total = 0;
            for (std::int64_t size : a.integers("sizes")) {
                expect(size > 0, "split", in, "sizes are positive");
                outs.push_back(in[0]);
                outs.back().shape[dim] = size;
                total += size;
            }
            expect(total == in[0].shape[dim], "split", in,
                   fmt::format("the sizes add up to {}, not to dimension {}", total, dim));
            return outs;
        },
        .gradient = split_gradient,
        .cost = [](Types, Types, const Attributes&) { return Cost{}; },
        .view = [](const TensorType& in, const Layout& layout,
                   const Attributes& a) -> std::optional<std::vector<Layout>> {
            const int dim = dim_of("split", in, a);
            std::vector<Layout> results;
            Layout next = layout;
            for (std::int64_t size : a.integers("sizes")) {
                results.push_back(next);
                next.offset += layout.strides[dim] * size;
            }
            return results;
        },
        .linear = Linear::first,
        .pieces = Pieces{.takes_apart = true,
                         .cover = true,
                         .resize = [](Attributes& a, std::int64_t,
                                      Sizes pieces) { a.set("sizes", std::vector(pieces.begin(), pieces.end())); }},
    };
}

Operator concat() {
    return {
        .name = "concat", // {dim}
        .loops =
            [](Types in, const Attributes& a) {
                const int dim = dim_of("concat", in[0], a), rank = in[0].shape.rank();
                std::string text;
                for (std::size_t i = 0; i < in.size(); ++i) text += (i ? "," : "") + along_other(dim, rank, i);
                return text + " -> " + along(dim, rank);
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect(!in.empty(), "concat", in, "takes at least one input");
            const int dim = dim_of("concat", in[0], a);
            TensorType out = in[0];
            out.shape[dim] = 0;
            for (const TensorType& type : in) {
                expect(type.shape.rank() == out.shape.rank() && type.dtype == out.dtype, "concat", in,
                       "takes tensors of one rank and element type");
                for (int d = 0; d < type.shape.rank(); ++d)
                    expect(d == dim || type.shape[d] == out.shape[d], "concat", in,
                           fmt::format("the sizes differ in dimension {}", d));
                out.shape[dim] += type.shape[dim];
            }
            return {out};
        },
        .gradient =
            [](GradientBuilder& g) {
                std::vector<std::int64_t> sizes;
                const int dim = dim_of("concat", g.type(g.input(0)), g.attributes());
                for (std::size_t i = 0; i < g.input_count(); ++i) sizes.push_back(g.shape(g.input(i))[dim]);
                const NodeId parts =
                    g.emit_node("split", {g.gradient()}, {{"dim", std::int64_t{dim}}, {"sizes", sizes}});
                for (std::size_t i = 0; i < g.input_count(); ++i) g.set(i, g.output_of(parts, i));
            },
        .cost = streaming(0),
        .accepts = Accepts::strided,
        .linear = Linear::joint,
        .pieces = Pieces{.cover = true, .resize = [](Attributes&, std::int64_t, Sizes) {}},
    };
}

} // namespace

std::vector<Operator> piece_operators() { return {slice(), slice_gradient(), split(), concat()}; }

} // namespace tutti::ops

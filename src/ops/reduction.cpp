// Reductions over dimensions, softmax and cumulative sums.
#include "ops/families.h"

#include <algorithm>

namespace tutti::ops {
namespace {

std::vector<bool> reduced_dims(std::string_view op, const TensorType& x, const Attributes& a) {
    std::vector<bool> reduced(static_cast<std::size_t>(x.shape.rank()), false);
    for (std::int64_t dim : a.integers("dims"))
        reduced[static_cast<std::size_t>(normalise_dim(op, dim, x.shape.rank()))] = true;
    return reduced;
}

Shape reduced_shape(std::string_view op, const TensorType& x, const Attributes& a, bool keep) {
    const std::vector<bool> reduced = reduced_dims(op, x, a);
    Shape result;
    for (int d = 0; d < x.shape.rank(); ++d) {
        if (!reduced[static_cast<std::size_t>(d)])
            result.push_back(x.shape[d]);
        else if (keep)
            result.push_back(1);
    }
    return result;
}

// Dimension d is loop "ld". A mean of parts is no sum of means, so its loops are whole.
Loops reduction_loops(std::string_view op, std::string_view mark) {
    return [op, mark](Types in, const Attributes& a) {
        const std::vector<bool> reduced = reduced_dims(op, in[0], a);
        std::string from, to;
        for (std::size_t d = 0; d < reduced.size(); ++d) {
            from += fmt::format(" l{}{}", d, reduced[d] ? mark : "");
            if (!reduced[d])
                to += fmt::format(" l{}", d);
            else if (a.flag("keep"))
                to += " 1";
        }
        return from + " -> " + to;
    };
}

// The gradient, and the output, seen at the input's shape.
ValueId spread(GradientBuilder& g, std::string_view op, ValueId value) {
    const TensorType x = g.type(g.input(0));
    const Shape kept = reduced_shape(op, x, g.attributes(), true);
    const ValueId reshaped = g.emit("reshape", {value}, {{"shape", to_vector(kept)}});
    return g.emit("expand", {reshaped}, {{"shape", to_vector(x.shape)}});
}

Operator reduction(std::string_view name, std::string_view mark, std::function<void(GradientBuilder&)> gradient,
                   Linear linear = Linear::first) {
    return {
        .name = name, // {dims, keep}
        .loops = reduction_loops(name, mark),
        .infer = [name](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs(name, in, 1, 1);
            expect(in[0].dtype != DType::boolean, name, in, "does not take booleans");
            return {{in[0].dtype, reduced_shape(name, in[0], a, a.flag("keep"))}};
        },
        .gradient = std::move(gradient),
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::strided,
        .linear = linear,
    };
}

void sum_gradient(GradientBuilder& g) { g.set(0, spread(g, "reduce_sum", g.gradient())); }

void mean_gradient(GradientBuilder& g) {
    const TensorType x = g.type(g.input(0));
    const double count = static_cast<double>(x.elements()) / static_cast<double>(g.type(g.output(0)).elements());
    g.set(0, g.emit("multiply", {spread(g, "reduce_mean", g.gradient()), g.constant(x.dtype, 1 / count)}));
}

// The maxima share the gradient evenly, as in PyTorch.
void max_gradient(GradientBuilder& g) {
    const TensorType x = g.type(g.input(0));
    const ValueId hit = g.emit("cast", {g.emit("equal", {g.input(0), spread(g, "reduce_max", g.output(0))})},
                               {{"dtype", std::string(name_of(x.dtype))}});
    const ValueId count = g.emit("reduce_sum", {hit}, g.attributes());
    const ValueId share = g.emit("divide", {g.gradient(), count});
    g.set(0, g.emit("multiply", {hit, spread(g, "reduce_max", share)}));
}

// softmax over the last dimension
Operator softmax() {
    return {
        .name = "softmax",
        .loops = loops("r* h! -> r* h!"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("softmax", in, 1, 1);
            expect(is_floating(in[0].dtype) && !in[0].shape.empty(), "softmax", in, "takes floating rows");
            return {in[0]};
        },
        .gradient =
            [](GradientBuilder& g) {
                g.set(0, g.emit("softmax_gradient", {g.gradient(), g.output(0)}));
            },
        .cost = streaming(15),
        .accepts = Accepts::rows,
        .overwrites = 0,
    };
}

// softmax_gradient(dy, y) -> dx = y (dy - sum(dy y))
Operator softmax_gradient() {
    return {
        .name = "softmax_gradient",
        .loops = loops("r* h!, r* h! -> r* h!"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("softmax_gradient", in, 2, 2);
            expect(in[0] == in[1], "softmax_gradient", in, "takes dy and y of one type");
            return {in[0]};
        },
        .cost = streaming(4),
        .accepts = Accepts::rows,
        .overwrites = 0,
        .gradient_of = "softmax",
    };
}

// cumsum {dim, reverse}
Operator cumsum() {
    return {
        .name = "cumsum",
        .loops =
            [](Types in, const Attributes& a) {
                const int dim = normalise_dim("cumsum", a.integer("dim"), in[0].shape.rank());
                std::string dims;
                for (int d = 0; d < in[0].shape.rank(); ++d) dims += fmt::format(" l{}{}", d, d == dim ? "!" : "");
                return dims + " -> " + dims;
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("cumsum", in, 1, 1);
            expect(in[0].dtype != DType::boolean, "cumsum", in, "does not take booleans");
            normalise_dim("cumsum", a.integer("dim"), in[0].shape.rank());
            return {in[0]};
        },
        .gradient =
            [](GradientBuilder& g) {
                g.set(0,
                      g.emit("cumsum", {g.gradient()},
                             {{"dim", g.attributes().integer("dim")}, {"reverse", !g.attributes().flag("reverse")}}));
            },
        .cost = streaming(1),
        .accepts = Accepts::strided,
        .linear = Linear::first,
    };
}

} // namespace

std::vector<Operator> reduction_operators() {
    return {reduction("reduce_sum", "", sum_gradient),
            reduction("reduce_mean", "!", mean_gradient),
            reduction("reduce_max", "^", max_gradient, Linear::none),
            softmax(),
            softmax_gradient(),
            cumsum()};
}

} // namespace tutti::ops

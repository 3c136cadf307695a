// Matrix products. Input and weight gradients are separate nodes, so that a schedule may move one without the other.
#include "ops/families.h"

namespace tutti::ops {
namespace {

// matmul: [..., m, k] x [..., k, n] -> [..., m, n]; either may be given transposed.
struct MatmulSizes {
    std::int64_t m, n, k;
};
MatmulSizes matmul_sizes(Types in, const Attributes& a) {
    const int r = in[0].shape.rank(), s = in[1].shape.rank();
    const bool ta = a.flag("transpose_a"), tb = a.flag("transpose_b");
    return {in[0].shape[ta ? r - 1 : r - 2], in[1].shape[tb ? s - 2 : s - 1], in[0].shape[ta ? r - 2 : r - 1]};
}

std::vector<TensorType> infer_matmul(Types in, const Attributes& a) {
    expect_inputs("matmul", in, 2, 2);
    const int rank = in[0].shape.rank();
    expect(rank >= 2 && in[1].shape.rank() == rank && in[0].dtype == in[1].dtype && is_floating(in[0].dtype), "matmul",
           in, "takes two floating tensors of one rank and type");
    const MatmulSizes sizes = matmul_sizes(in, a);
    expect(in[1].shape[a.flag("transpose_b") ? rank - 1 : rank - 2] == sizes.k, "matmul", in,
           "the inner dimensions differ");
    TensorType out = in[0];
    for (int i = 0; i < rank - 2; ++i)
        expect(in[0].shape[i] == in[1].shape[i], "matmul", in, "the batch dimensions differ");
    out.shape[rank - 2] = sizes.m;
    out.shape[rank - 1] = sizes.n;
    return {out};
}

void matmul_gradient(GradientBuilder& g) {
    const bool ta = g.attributes().flag("transpose_a"), tb = g.attributes().flag("transpose_b");
    const ValueId dy = g.gradient(), a = g.input(0), b = g.input(1);
    auto product = [&](ValueId x, bool tx, ValueId y, bool ty) {
        return g.emit("matmul", {x, y}, {{"transpose_a", tx}, {"transpose_b", ty}});
    };
    if (g.wants(0)) g.set(0, ta ? product(b, tb, dy, true) : product(dy, false, b, !tb));
    if (g.wants(1)) g.set(1, tb ? product(dy, true, a, ta) : product(a, !ta, dy, false));
}

Operator matmul() {
    return {
        .name = "matmul",
        .loops =
            [](Types, const Attributes& a) {
                return fmt::format("b* {}, b* {} -> b* m n", a.flag("transpose_a") ? "k m" : "m k",
                                   a.flag("transpose_b") ? "n k" : "k n");
            },
        .infer = infer_matmul,
        .gradient = matmul_gradient,
        .cost =
            [](Types in, Types out, const Attributes& a) {
                return Cost{{2.0 * static_cast<double>(out[0].elements() * matmul_sizes(in, a).k)}, traffic(in, out)};
            },
        .accepts = Accepts::rows,
        .linear = Linear::either,
    };
}

// Of any of the three matmuls of a linear layer: rows of the first input times the weight's elements.
Cost linear_cost(Types in, Types out, const Shape& weight) {
    const std::int64_t rows = in[0].elements() / in[0].shape.back();
    return {{2.0 * static_cast<double>(rows) * static_cast<double>(weight.elements())}, traffic(in, out)};
}

std::vector<TensorType> infer_linear(Types in, const Attributes&) {
    expect_inputs("linear", in, 2, 3);
    expect(!in[0].shape.empty() && in[1].shape.rank() == 2 && in[0].shape.back() == in[1].shape[1] &&
               in[0].dtype == in[1].dtype,
           "linear", in, "takes x [..., k], weight [n, k] and optionally bias [n] of one type");
    if (in.size() == 3)
        expect(in[2].shape == Shape{in[1].shape[0]} && in[2].dtype == in[0].dtype, "linear", in, "the bias is not [n]");
    return {{in[0].dtype, with_last(in[0].shape, in[1].shape[0])}};
}

void linear_gradient(GradientBuilder& g) {
    const ValueId dy = g.gradient(), x = g.input(0), w = g.input(1);
    if (g.wants(0)) g.set(0, g.emit("linear_input_gradient", {dy, w}));
    if (g.wants(1)) g.set(1, g.emit("linear_weight_gradient", {dy, x}));
    if (g.wants(2)) g.set(2, g.emit("bias_gradient", {dy}));
}

Operator linear() {
    return {
        .name = "linear",
        .loops = [](Types in,
                    const Attributes&) { return in.size() == 3 ? "r* k!, n k!, n -> r* n" : "r* k, n k -> r* n"; },
        .infer = infer_linear,
        .gradient = linear_gradient,
        .cost = [](Types in, Types out, const Attributes&) { return linear_cost(in, out, in[1].shape); },
        .accepts = Accepts::matrix,
        .product = WeightProduct{.input_gradient = "linear_input_gradient",
                                 .weight_gradient = "linear_weight_gradient",
                                 .bias_gradient = "bias_gradient",
                                 .with_loss = "linear_cross_entropy_gradient"},
    };
}

// linear_input_gradient(dy [..., n], weight [n, k] [, addend [..., k]]) -> dx [..., k]; dx may lie where the addend
// does
Operator linear_input_gradient() {
    return {
        .name = "linear_input_gradient",
        .loops = [](Types in,
                    const Attributes&) { return in.size() == 3 ? "r* n!, n! k, r* k -> r* k" : "r* n, n k -> r* k"; },
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("linear_input_gradient", in, 2, 3);
            expect(!in[0].shape.empty() && in[1].shape.rank() == 2 && in[0].shape.back() == in[1].shape[0] &&
                       in[0].dtype == in[1].dtype,
                   "linear_input_gradient", in, "takes dy [..., n] and weight [n, k] of one type");
            const TensorType dx{in[0].dtype, with_last(in[0].shape, in[1].shape[1])};
            expect(in.size() == 2 || in[2] == dx, "linear_input_gradient", in,
                   "the addend is not of the result's type");
            return {dx};
        },
        .cost = [](Types in, Types out, const Attributes&) { return linear_cost(in, out, in[1].shape); },
        .accepts = Accepts::matrix,
        .overwrites = 2,
        .gradient_of = "linear",
        .addend = 2,
    };
}

Operator linear_weight_gradient() {
    return {
        .name = "linear_weight_gradient",
        .loops = loops("r* n, r* k -> n k"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("linear_weight_gradient", in, 2, 2);
            expect(!in[0].shape.empty() && without_last(in[0].shape) == without_last(in[1].shape) &&
                       in[0].dtype == in[1].dtype,
                   "linear_weight_gradient", in, "takes dy [..., n] and x [..., k] of one type");
            return {{wide(in[0].dtype), {in[0].shape.back(), in[1].shape.back()}}};
        },
        .cost = [](Types in, Types out, const Attributes&) { return linear_cost(in, out, out[0].shape); },
        .accepts = Accepts::matrix,
        .accumulates_from = 0,
        .accumulates_into = Accepts::matrix,
        .linear = Linear::either,
        .gradient_of = "linear",
    };
}

Operator bias_gradient() {
    return {
        .name = "bias_gradient",
        .loops = loops("r* n -> n"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("bias_gradient", in, 1, 1);
            expect(!in[0].shape.empty(), "bias_gradient", in, "takes dy [..., n]");
            return {{wide(in[0].dtype), {in[0].shape.back()}}};
        },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::matrix,
        .accumulates_from = 0,
        .linear = Linear::first,
    };
}

} // namespace

std::vector<Operator> matrix_operators() {
    return {matmul(), linear(), linear_input_gradient(), linear_weight_gradient(), bias_gradient()};
}

} // namespace tutti::ops

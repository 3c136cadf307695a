// Elementwise functions of one tensor, and casts.
#include "ops/families.h"

namespace tutti::ops {
namespace {

std::vector<TensorType> infer_floating(std::string_view op, Types in, std::size_t count) {
    expect_inputs(op, in, count, count);
    expect(is_floating(in[0].dtype), op, in, "takes floating tensors");
    for (const TensorType& type : in) expect(type == in[0], op, in, "takes tensors of one type");
    return {in[0]};
}

using Gradient = std::function<void(GradientBuilder&)>;

// y = f(x), elementwise.
Operator unary(std::string_view name, double flops, Gradient gradient, Linear linear = Linear::none) {
    return {
        .name = name,
        .loops = loops("r* -> r*"),
        .infer = [name](Types in, const Attributes&) { return infer_floating(name, in, 1); },
        .gradient = std::move(gradient),
        .cost = streaming(flops),
        .accepts = Accepts::strided,
        .writes = Accepts::rows,
        .overwrites = 0,
        .linear = linear,
    };
}

// y = f(x), which `gated` knows by a name.
Operator activation(std::string_view name, double flops, Gradient gradient,
                    std::function<std::string(const Attributes&)> gate) {
    Operator op = unary(name, flops, std::move(gradient));
    op.gate = std::move(gate);
    return op;
}

// dx = f'(x) dy as one node NAME(dy, x), with the attributes of the forward.
Operator activation_gradient(std::string_view name, std::string_view of, double flops) {
    return {
        .name = name,
        .loops = loops("r*, r* -> r*"),
        .infer = [name](Types in, const Attributes&) { return infer_floating(name, in, 2); },
        .cost = streaming(flops),
        .accepts = Accepts::strided,
        .writes = Accepts::rows,
        .overwrites = 0,
        .gradient_of = of,
    };
}

Gradient through(std::string_view op) {
    return [op](GradientBuilder& g) { g.set(0, g.emit(op, {g.gradient(), g.input(0)}, g.attributes())); };
}

// dx = dy * factor(g)
template <class Factor>
Gradient times(Factor factor) {
    return [factor](GradientBuilder& g) { g.set(0, g.emit("multiply", {g.gradient(), factor(g)})); };
}

ValueId square(GradientBuilder& g, ValueId v) { return g.emit("multiply", {v, v}); }
ValueId real(GradientBuilder& g, double value) { return g.constant(g.type(g.input(0)).dtype, value); }

// cast {dtype}
Operator cast() {
    return {
        .name = "cast",
        .loops = loops("r* -> r*"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("cast", in, 1, 1);
            return {{a.dtype("dtype"), in[0].shape}};
        },
        .gradient =
            [](GradientBuilder& g) {
                const std::string dtype(name_of(g.type(g.input(0)).dtype));
                g.set(0, g.emit("cast", {g.gradient()}, {{"dtype", dtype}}));
            },
        .cost = streaming(0),
        .accepts = Accepts::strided,
        .is_copy = true,
    };
}

} // namespace

std::vector<Operator> unary_operators() {
    return {
        activation("gelu", 20, through("gelu_gradient"), // {tanh}: the tanh approximation, else erf
                   [](const Attributes& a) { return std::string(a.flag("tanh") ? "gelu_tanh" : "gelu"); }),
        activation_gradient("gelu_gradient", "gelu", 30),
        activation("silu", 10, through("silu_gradient"), [](const Attributes&) { return std::string("silu"); }),
        activation_gradient("silu_gradient", "silu", 14),
        activation("relu", 1, through("relu_gradient"), [](const Attributes&) { return std::string("relu"); }),
        activation_gradient("relu_gradient", "relu", 1),
        unary(
            "negate", 1, [](GradientBuilder& g) { g.set(0, g.emit("negate", {g.gradient()})); }, Linear::first),
        unary("exp", 10, times([](GradientBuilder& g) { return g.output(0); })),
        unary("log", 10,
              [](GradientBuilder& g) {
                  g.set(0, g.emit("divide", {g.gradient(), g.input(0)}));
              }),
        unary("sqrt", 4, times([](GradientBuilder& g) {
                  return g.emit("divide", {real(g, 0.5), g.output(0)});
              })),
        unary("rsqrt", 4, times([](GradientBuilder& g) { // -y^3 / 2
                  const ValueId cube = g.emit("multiply", {square(g, g.output(0)), g.output(0)});
                  return g.emit("multiply", {cube, real(g, -0.5)});
              })),
        unary("tanh", 10, times([](GradientBuilder& g) {
                  return g.emit("subtract", {real(g, 1), square(g, g.output(0))});
              })),
        unary("sigmoid", 10, times([](GradientBuilder& g) { // y (1 - y)
                  return g.emit("multiply", {g.output(0), g.emit("subtract", {real(g, 1), g.output(0)})});
              })),
        unary("erf", 15, times([](GradientBuilder& g) { // 2/sqrt(pi) exp(-x^2)
                  const ValueId bell = g.emit("exp", {g.emit("negate", {square(g, g.input(0))})});
                  return g.emit("multiply", {bell, real(g, 1.1283791670955126)});
              })),
        unary("sin", 10, times([](GradientBuilder& g) { return g.emit("cos", {g.input(0)}); })),
        unary("cos", 10, times([](GradientBuilder& g) { return g.emit("negate", {g.emit("sin", {g.input(0)})}); })),
        cast(),
    };
}

} // namespace tutti::ops

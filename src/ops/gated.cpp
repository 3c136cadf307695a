// The gated half of a feed-forward network in one, made after differentiation (graph/fuse.h): no gradients of their
// own.
#include "ops/families.h"

#include <algorithm>
#include <array>

namespace tutti::ops {
namespace {

void expect_gated(std::string_view op, Types in, const Attributes& a, std::size_t count) {
    constexpr std::array<std::string_view, 4> known = {"silu", "gelu", "gelu_tanh", "relu"};
    expect_inputs(op, in, count, count);
    expect(is_floating(in[0].dtype), op, in, "takes floating tensors");
    for (const TensorType& type : in) expect(type == in[0], op, in, "takes tensors of one type");
    expect(std::ranges::find(known, a.text("activation")) != known.end(), op, in,
           fmt::format("does not know the activation {}", a.text("activation")));
}

// gated(gate, up) {activation: silu, gelu, gelu_tanh or relu} -> activation(gate) up
Operator gated() {
    return {
        .name = "gated",
        .loops = loops("r*, r* -> r*"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_gated("gated", in, a, 2);
            return {in[0]};
        },
        .cost = streaming(12),
        .accepts = Accepts::strided,
    };
}

// gated_gradient(dy, gate, up) {activation} -> dgate = dy up activation'(gate), dup = dy activation(gate)
Operator gated_gradient() {
    return {
        .name = "gated_gradient",
        .loops = loops("r*, r*, r* -> r*, r*"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_gated("gated_gradient", in, a, 3);
            return {in[0], in[0]};
        },
        .cost = streaming(20),
        .accepts = Accepts::strided,
        .writes = Accepts::rows,
        .gradient_of = "gated",
    };
}

} // namespace

std::vector<Operator> gated_operators() { return {gated(), gated_gradient()}; }

} // namespace tutti::ops

// Cross-entropy, fused with its log-softmax.
#include "ops/families.h"

namespace tutti {
namespace {

// cross_entropy(logits [..., v], targets [...]) {ignore_index} -> loss [], lse [...]
//   loss is the sum over the targets that count; the mean is taken by the seed of its gradient, which knows the whole
//   batch.
Operator cross_entropy() {
    return {
        .name = "cross_entropy",
        .loops = loops("r* v!, r* -> , r*"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("cross_entropy", in, 2, 2);
            expect(!in[0].shape.empty() && is_floating(in[0].dtype) && without_last(in[0].shape) == in[1].shape &&
                       in[1].dtype == DType::int64,
                   "cross_entropy", in, "takes logits [..., v] and int64 targets [...]");
            const DType dtype = wide(in[0].dtype);
            return {{dtype, {}}, {dtype, in[1].shape}};
        },
        .gradient =
            [](GradientBuilder& g) {
                g.expect_only_first_output();
                g.set(0, g.emit("cross_entropy_gradient", {g.gradient(), g.input(0), g.input(1), g.output(1)},
                                g.attributes()));
            },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{12.0 * static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::dense,
    };
}

// cross_entropy_gradient(dloss [], logits, targets, lse) {ignore_index} -> dlogits
Operator cross_entropy_gradient() {
    return {
        .name = "cross_entropy_gradient",
        .loops = loops(", r* v!, r*, r* -> r* v!"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("cross_entropy_gradient", in, 4, 4);
            expect(in[0].shape.empty() && in[2].shape == in[3].shape, "cross_entropy_gradient", in,
                   "takes dloss [], logits, targets and lse");
            return {in[1]};
        },
        .cost = streaming(12),
        .accepts = Accepts::dense,
        .overwrites = 1,
    };
}

} // namespace

std::vector<Operator> loss_operators() { return {cross_entropy(), cross_entropy_gradient()}; }

} // namespace tutti

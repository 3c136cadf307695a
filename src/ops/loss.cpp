// Cross-entropy, fused with its log-softmax.
#include "ops/families.h"

namespace tutti::ops {
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
        .loss = ClassLoss{.part = "cross_entropy_part",
                          .join = "cross_entropy_join",
                          .with_product = "linear_cross_entropy_gradient"},
    };
}

// Where a part of the classes begins among all of them, and how many these are: targets are classes of the whole.
Attributes part_of_classes(const Attributes& a, std::int64_t held, std::string_view loop, std::int64_t begin) {
    Attributes part = a;
    if (loop != "v") return part;
    part.set("first_class", a.integer("first_class", 0) + begin);
    part.set("classes", a.integer("classes", held));
    return part;
}

// cross_entropy_gradient(dloss [], logits, targets, lse) {ignore_index, first_class, classes} -> dlogits
Operator cross_entropy_gradient() {
    return {
        .name = "cross_entropy_gradient",
        .loops = loops(", r* v, r*, r* -> r* v"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("cross_entropy_gradient", in, 4, 4);
            expect(in[0].shape.empty() && in[2].shape == in[3].shape, "cross_entropy_gradient", in,
                   "takes dloss [], logits, targets and lse");
            return {in[1]};
        },
        .cost = streaming(12),
        .part = [](Types in, const Attributes& a, std::string_view loop, std::int64_t begin,
                   std::int64_t) { return part_of_classes(a, in[1].shape.back(), loop, begin); },
        .accepts = Accepts::dense,
        .overwrites = 1,
        .gradient_of = "cross_entropy",
    };
}

// ---- The loss where the classes are divided among ranks, made after differentiation (sharding/shard.h): every rank
// takes the statistics of its own, all ranks' are gathered, and each computes the same loss from them.

// cross_entropy_part(logits [..., v], targets [...]) {ignore_index, first_class, classes} -> statistics [1, ..., 2]
//   of each row the log of the sum of exponentials, and the target's logit where it is one of these classes, else 0
Operator cross_entropy_part() {
    return {
        .name = "cross_entropy_part",
        .loops = loops("r* v!, r* -> 1 r* c!"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("cross_entropy_part", in, 2, 2);
            expect(!in[0].shape.empty() && is_floating(in[0].dtype) && without_last(in[0].shape) == in[1].shape &&
                       in[1].dtype == DType::int64,
                   "cross_entropy_part", in, "takes logits [..., v] and int64 targets [...]");
            TensorType out{wide(in[0].dtype), {1}};
            for (std::int64_t size : in[1].shape) out.shape.push_back(size);
            out.shape.push_back(2);
            return {out};
        },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{12.0 * static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::dense,
    };
}

// cross_entropy_join(statistics [p, ..., 2], targets [...]) {ignore_index} -> loss [], lse [...]: as cross_entropy
Operator cross_entropy_join() {
    return {
        .name = "cross_entropy_join",
        .loops = loops("p! r* c!, r* -> , r*"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("cross_entropy_join", in, 2, 2);
            const Shape &statistics = in[0].shape, &targets = in[1].shape;
            bool fits = statistics.rank() == targets.rank() + 2 && statistics.back() == 2;
            for (int d = 0; fits && d < targets.rank(); ++d) fits = statistics[d + 1] == targets[d];
            expect(fits && in[1].dtype == DType::int64, "cross_entropy_join", in,
                   "takes statistics [p, ..., 2] and int64 targets [...]");
            return {{in[0].dtype, {}}, {in[0].dtype, targets}};
        },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{6.0 * static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::dense,
    };
}

} // namespace

std::vector<Operator> loss_operators() {
    return {cross_entropy(), cross_entropy_gradient(), cross_entropy_part(), cross_entropy_join()};
}

} // namespace tutti::ops

// Operators of the step beyond the model: accumulation into gradient chunks, the global norm, the optimizer.
// A chunk is a flat tensor [n]; `ranges` lists begin, end, decayed (0 or 1) for each of its entries.
#include "ops/families.h"

namespace tutti::ops {
namespace {

Infer nothing_new(std::string_view name, std::size_t least, std::size_t most,
                  const std::function<std::vector<TensorType>(Types)>& out) {
    return [=](Types in, const Attributes&) -> std::vector<TensorType> {
        expect_inputs(name, in, least, most);
        return out(in);
    };
}

// accumulate(x) {dtype} -> y: y += x where it accumulates, y = x on the first write. x may be narrower or wider than
// y.
Operator accumulate() {
    return {
        .name = "accumulate",
        .loops = loops("r* -> r*"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("accumulate", in, 1, 1);
            return {{a.dtype("dtype"), in[0].shape}};
        },
        .cost = streaming(1),
        .accepts = Accepts::strided,
        .accumulates_from = 0,
        .accumulates_into = Accepts::strided,
    };
}

// squared_norm(gradients [n]) -> float64 []: over all elements of a chunk
Operator squared_norm() {
    return {
        .name = "squared_norm",
        .loops = loops("n -> "),
        .infer = nothing_new("squared_norm", 1, 1,
                             [](Types) {
                                 return std::vector<TensorType>{{DType::float64, {}}};
                             }),
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{2.0 * static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::dense,
        .step_role = StepRole::squared_norm,
    };
}

// sum_step([squares float64 [n]] [, loss []]) {squares: n, loss: whether it is there} -> float64 [3]
//   What ranks add up at the end of a step: all squares, the loss, and 1 where the scalars ask to stop.
Operator sum_step() {
    return {
        .name = "sum_step",
        .loops =
            [](Types, const Attributes& a) {
                const std::string squares = a.integer("squares") > 0 ? "c!" : "";
                return squares + (a.integer("squares") > 0 && a.flag("loss") ? ", " : "") + " -> s!";
            },
        .infer = nothing_new("sum_step", 0, 2,
                             [](Types) {
                                 return std::vector<TensorType>{{DType::float64, {3}}};
                             }),
        .cost = streaming(1),
        .accepts = Accepts::dense,
    };
}

// finish_norm(sums float64 [3]): sets gradient_norm, loss, clip_factor, finite and stop of the StepScalars.
Operator finish_norm() {
    return {
        .name = "finish_norm",
        .loops = loops("s! -> "),
        .infer = nothing_new("finish_norm", 1, 1,
                             [](Types) {
                                 return std::vector<TensorType>{{DType::float64, {}}};
                             }),
        .cost = streaming(1),
        .accepts = Accepts::dense,
        .step_role = StepRole::finish_norm,
    };
}

// adamw(gradients [n]) {ranges, weights, master, moments, streams, firsts, restores} -> weights, moments1, moments2 [,
// master]: one pass over a chunk, in place
//   `weights` and `moments` name the element types of those that have another than the gradients; with `master` there
//   is a float32 copy of narrow weights, and the weights are that copy rounded. Where narrow weights
//   have no master, and for narrow moments, all is computed wide and stored with stochastic rounding
//   (backend/random_stream.h): `streams` has a number per range, by which its elements draw; they count
//   from 0, or from the number in `firsts`. Decoupled decay first,
//   bias-corrected moments, epsilon outside the root; nothing changes where the step is not finite.
//   With `restores` the gradients lie where the weights do, and then the weights become the master copy again.
Operator adamw() {
    return {
        .name = "adamw",
        .loops = [](Types,
                    const Attributes& a) { return a.flag("master") ? "n! -> n!, n!, n!, n!" : "n! -> n!, n!, n!"; },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("adamw", in, 1, 1);
            auto stored = [&](std::string_view what) {
                return TensorType{a.has(what) ? a.dtype(what) : in[0].dtype, in[0].shape};
            };
            std::vector<TensorType> out = {stored("weights"), stored("moments"), stored("moments")};
            if (a.flag("master")) out.push_back({wide(in[0].dtype), in[0].shape});
            return out;
        },
        .cost = streaming(15),
        .accepts = Accepts::dense,
        .kernel_class = KernelClass::optimizer,
        .step_role = StepRole::update,
    };
}

} // namespace

std::vector<Operator> gradient_operators() {
    return {accumulate(), squared_norm(), sum_step(), finish_norm(), adamw()};
}

} // namespace tutti::ops

// The output head with its loss, a few rows at a time: the logits of a whole micro-batch are never there at once.
#include "ops/families.h"

namespace tutti::ops {
namespace {

constexpr std::string_view name = "linear_cross_entropy_gradient";

// linear_cross_entropy_gradient(dloss [], x [..., k], weight [v, k], targets [...] [, bias [v]]) {ignore_index, rows}
//     -> loss [], dx [..., k], dweight [v, k] [, dbias [v]]
//   For every `rows` rows of x: logits = x weight^T (+ bias), rounded to the data type; loss += their cross-entropy, a
//   sum; dlogits = dloss (softmax - onehot), rounded too; dx = dlogits weight, dweight += dlogits^T x. How many rows
//   there are at a time changes sums in their last bits only: those in
//   which dweight is stored. Made after differentiation (graph/fuse.h).
Operator linear_cross_entropy_gradient() {
    return {
        .name = name,
        .loops =
            [](Types in, const Attributes&) {
                return in.size() == 5 ? ", r* k!, v! k!, r*, v! -> , r* k!, v! k!, v!"
                                      : ", r* k!, v! k!, r* -> , r* k!, v! k!";
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs(name, in, 4, 5);
            const TensorType &x = in[1], &weight = in[2], &targets = in[3];
            expect(in[0].shape.empty() && !x.shape.empty() && is_floating(x.dtype) && weight.shape.rank() == 2 &&
                       weight.shape[1] == x.shape.back() && weight.dtype == x.dtype &&
                       targets == TensorType{DType::int64, without_last(x.shape)},
                   name, in, "takes dloss [], x [..., k], weight [v, k] and int64 targets [...]");
            expect(in.size() == 4 || in[4] == TensorType{x.dtype, {weight.shape[0]}}, name, in, "the bias is not [v]");
            expect(a.integer("rows") > 0, name, in, "takes at least one row at a time");
            const DType sums = wide(x.dtype);
            std::vector<TensorType> out = {{sums, {}}, x, {sums, weight.shape}};
            if (in.size() == 5) out.push_back({sums, in[4].shape});
            return out;
        },
        .cost =
            [](Types in, Types out, const Attributes&) { // three products, and the logits go through memory four times
                const std::int64_t rows = in[3].elements(), vocabulary = in[2].shape[0];
                const double logits = static_cast<double>(rows) * static_cast<double>(vocabulary);
                const double product = 2 * static_cast<double>(in[2].shape[1]);
                return Cost{{(3 * product + 24) * logits},
                            traffic(in, out) + Bytes{4 * rows * vocabulary * size_of(in[1].dtype)}};
            },
        .accepts = Accepts::dense,
        .accumulates_from = 2,
        .kernel_class = KernelClass::head,
    };
}

} // namespace

std::vector<Operator> head_operators() { return {linear_cross_entropy_gradient()}; }

} // namespace tutti::ops

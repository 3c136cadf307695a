// What the files of this folder share: the families' lists, and the small helpers that keep an operator at one glance.
#pragma once

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/operator.h"

#include <string>
#include <vector>

namespace tutti::ops {

std::vector<Operator> matrix_operators();     // matmul, linear and its gradients
std::vector<Operator> norm_operators();       // layer_norm, rms_norm and their gradients
std::vector<Operator> unary_operators();      // gelu, silu, exp, cast, ...
std::vector<Operator> binary_operators();     // add, multiply, less, where, ...
std::vector<Operator> reduction_operators();  // reduce_sum, reduce_mean, reduce_max, softmax, cumsum
std::vector<Operator> shape_operators();      // reshape, transpose, expand, contiguous
std::vector<Operator> piece_operators();      // slice, split, concat
std::vector<Operator> index_operators();      // embedding, gather
std::vector<Operator> attention_operators();  // attention, rotary
std::vector<Operator> loss_operators();       // cross_entropy, whole and by parts of the classes
std::vector<Operator> gated_operators();      // gated
std::vector<Operator> head_operators();       // linear_cross_entropy_gradient
std::vector<Operator> random_operators();     // dropout
std::vector<Operator> source_operators();     // fill, iota, rotary_table, step_scalar
std::vector<Operator> gradient_operators();   // accumulate, and the chunk operators of the optimizer
std::vector<Operator> collective_operators(); // all_reduce, all_gather, reduce_scatter, all_to_all

using Loops = std::function<std::string(Types, const Attributes&)>;
using Infer = std::function<std::vector<TensorType>(Types, const Attributes&)>;
using CostFunction = std::function<Cost(Types, Types, const Attributes&)>;

inline Loops loops(std::string text) {
    return [text = std::move(text)](Types, const Attributes&) { return text; };
}

// One pass over all operands, `flops` per element of the first output (or input, where there is none).
CostFunction streaming(double flops);
// Bytes of every operand once.
Bytes traffic(Types inputs, Types outputs);

// float32 for 16-bit floats, else the type itself: in what statistics and parameter gradients are kept.
DType wide(DType dtype);

// Error "[op] ..." naming all input types, unless the condition holds.
void expect(bool condition, std::string_view op, Types inputs, std::string_view what);
void expect_inputs(std::string_view op, Types inputs, std::size_t least, std::size_t most);

inline std::vector<std::int64_t> to_vector(const Shape& shape) { return {shape.begin(), shape.end()}; }
// A list of sizes as a shape; Error where it has too many or a size is not positive.
Shape to_shape(const std::vector<std::int64_t>& sizes);
Shape without_last(const Shape& shape);
Shape with_last(const Shape& shape, std::int64_t size);
// A dim attribute counted from the end where negative; Error where it is outside.
int normalise_dim(std::string_view op, std::int64_t dim, int rank);

} // namespace tutti::ops

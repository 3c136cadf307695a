// Traits of operators: the facts by which passes, sharding and planners treat operators alike, so that none of them has
// to know an operator by its name. Loops are named as the operator's loop dims name them (graph/loops.h).
#pragma once

#include "graph/attributes.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace tutti {

// In which inputs a sum may be taken before the operator or after it, as with f(a + b) = f(a) + f(b): such an operator
// takes partial sums and gives partial sums.
enum class Linear {
    none,
    first,  // in the first input
    either, // in each of the first two, the other being the same
    joint,  // in all inputs together
};

// What ranks along an axis of the mesh do together.
enum class AxisCollective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

// What operators beyond the model do at the end of a step.
enum class StepRole : std::uint8_t {
    squared_norm, // of the gradients of a chunk
    finish_norm,  // the global gradient norm, and the other StepScalars
    update,       // the optimizer's pass over a chunk: weights and states
};

// Classes of kernels that reach different shares of a device's peak (costs/device_kind.h).
enum class KernelClass : std::uint8_t { general, attention, attention_gradient, head, optimizer };

// Sums and products of two operands, element by element.
enum class Arithmetic : std::uint8_t { none, sum, product };

// A matrix product with a weight, as a linear layer: x [..., k], weight [n, k] [, bias [n]] -> [..., n]. Ranks split it
// by columns (n) or by rows (k), and products of one x may be merged into one (graph/merge.h).
struct WeightProduct {
    std::size_t weight = 1, bias = 2;     // inputs; the bias may be missing, and then is the last
    std::string_view in_features = "k";   // the contracted loop: parts give partial sums, one of them with the bias
    std::string_view out_features = "n";  // the loop of the result's last dimension
    std::string_view input_gradient = {}; // operators of (dy, weight), of (dy, x) and of (dy)
    std::string_view weight_gradient = {}, bias_gradient = {};
    std::string_view with_loss = {}; // the operator of it, a loss of its result, and the gradients of both
};

// Looks rows of a table up: table [v, h], indices [...] -> [..., h].
struct TableLookup {
    std::size_t table = 0, indices = 1; // inputs
    std::string_view rows = "v";        // the loop of the table's rows
};

// A loss, summed over its rows: logits [..., v], targets [...] -> loss [], one statistic per row. Where ranks have
// parts of the classes, each computes `part` of its own, and all of them `join` what is gathered.
struct ClassLoss {
    std::string_view classes = "v"; // the loop of the classes
    std::string_view part = {}, join = {};
    std::string_view with_product = {}; // as WeightProduct::with_loss
};

// The input gradient of a normalisation: (dy, x, statistics ... [, scale]) -> dx.
struct NormGradient {
    std::size_t scale = 0;                 // input, the last
    std::string_view weight_gradient = {}; // the operator of all inputs but the scale
    std::string_view both_gradients = {};  // the operator of both, which takes a residual to add to dx, too
};

// One operand is pieces of another, one behind the other, along the dimension that the attribute "dim" names; of the
// others' elements, those from the attribute "start" on.
struct Pieces {
    bool takes_apart = false; // the input is the whole and outputs are pieces of it, or the other way round
    bool cover = false;       // the pieces are all of the whole
    // The attributes, given the sizes of the whole and of its pieces.
    std::function<void(Attributes&, std::int64_t whole, std::span<const std::int64_t> pieces)> resize = {};
};

} // namespace tutti

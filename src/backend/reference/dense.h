// The operands of this folder's kernels: every operand is a dense, row-major array of doubles. Strides, element types
// and accumulation are dealt with once, outside; a kernel is its formula.
//
// Integers are exact up to 2^53, more than any id or position; a boolean is 0 or 1.
#pragma once

#include "backend/device.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tutti::backend::reference {

struct Tensor {
    DType dtype = DType::float64; // what it is rounded to when stored
    Shape shape;
    double* data = nullptr;

    double& operator[](std::int64_t i) const { return data[i]; }
    std::int64_t elements() const { return shape.elements(); }
    std::int64_t back() const { return shape.back(); }                    // length of a row
    std::int64_t rows() const { return shape.elements() / shape.back(); } // all dimensions but the last
    std::span<double> row(std::int64_t i) const { return {data + i * back(), static_cast<std::size_t>(back())}; }
};

struct Call {
    const KernelRequest& request;
    const Attributes& attributes;
    std::span<const Tensor> in;
    std::span<const Tensor> out; // zero at first, or what they held where the kernel updates them
    StepScalars& scalars;
    std::int64_t samples_before = 0;
};

struct Formula {
    std::string op;
    std::function<void(const Call&)> compute;
    bool updates = false;     // outputs are read as well as written: adamw
    int accumulates_from = 0; // where it accumulates, outputs from this one on are added into: Operator's
    std::function<void(const KernelRequest&)> check = {}; // Error where it does not compute what is asked for
};

std::vector<Formula> matrix_formulas();
std::vector<Formula> norm_formulas();
std::vector<Formula> unary_formulas();
std::vector<Formula> binary_formulas();
std::vector<Formula> reduction_formulas();
std::vector<Formula> shape_formulas();
std::vector<Formula> index_formulas();
std::vector<Formula> attention_formulas();
std::vector<Formula> loss_formulas();
std::vector<Formula> head_formulas();
std::vector<Formula> random_formulas();
std::vector<Formula> source_formulas();
std::vector<Formula> step_formulas();

// The value as an element type holds it: for what an operator rounds before it goes on with it.
double rounded(double value, DType dtype);

// The same request on other operands: formulas made of formulas.
inline Call on(const Call& call, std::span<const Tensor> in, std::span<const Tensor> out) {
    return {call.request, call.attributes, in, out, call.scalars, call.samples_before};
}

// Calls visit(index) for every index of the shape, in row-major order.
template <class Visit>
void for_each_index(const Shape& shape, Visit visit) {
    Shape index = shape;
    std::fill(index.begin(), index.end(), 0);
    for (std::int64_t left = shape.elements(); left > 0; --left) {
        visit(static_cast<const Shape&>(index));
        for (int d = shape.rank() - 1; d >= 0; --d) {
            if (++index[d] < shape[d]) break;
            index[d] = 0;
        }
    }
}

// Where `index` lies in a dense tensor of this shape. The shape may be broadcast: trailing dimensions are aligned, and
// those of size 1 stay at 0.
inline std::int64_t offset_of(const Shape& shape, const Shape& index) {
    std::int64_t offset = 0;
    for (int d = 0; d < shape.rank(); ++d)
        offset = offset * shape[d] + (shape[d] == 1 ? 0 : index[d + index.rank() - shape.rank()]);
    return offset;
}

// A dim attribute counted from the end where negative.
inline int dim_of(const Call& call, const Shape& shape) {
    const std::int64_t dim = call.attributes.integer("dim");
    return static_cast<int>(dim < 0 ? dim + shape.rank() : dim);
}

} // namespace tutti::backend::reference

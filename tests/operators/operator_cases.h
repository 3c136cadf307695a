// One definition of test cases for every operator, for any device: what it is given, not what should come out. Tests
// hold the results against finite differences, against parts of themselves, and against another device.
#pragma once

#include "graph/operator.h"
#include "operators/interpreter.h"

#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::testing {

// The element type of an argument: most follow the type under test.
enum class Element { tested, wide, float64, int64, int32, boolean };
enum class Fill { normal, small, positive, ids, boolean, mask, documents };

struct Argument {
    Shape shape;
    Element element = Element::tested;
    Fill fill = Fill::normal;
    std::int64_t below = 0;                   // ids: 0 .. below - 1; documents: the position of the first one
    std::optional<std::int64_t> instead = {}; // ids: every third is this one
};

inline Argument normal(const Shape& shape) { return {shape}; }
inline Argument positive(const Shape& shape) { return {shape, Element::tested, Fill::positive}; }
inline Argument wide_normal(const Shape& shape) { return {shape, Element::wide}; }
inline Argument wide_positive(const Shape& shape) { return {shape, Element::wide, Fill::positive}; }

// Inputs that only make sense as results of an operator on the other inputs, as the statistics of a norm.
struct Forward {
    std::string op;
    std::vector<std::size_t> inputs;                          // of the case
    std::vector<std::pair<std::size_t, std::size_t>> outputs; // output of op -> input of the case
};

struct Case {
    std::string name; // "linear/bias"
    std::vector<Argument> inputs = {};
    Attributes attributes = {};                    // a dtype of "tested" or "wide" stands for the type under test
    std::vector<std::size_t> differentiable = {0}; // outputs that may reach a loss; the others are statistics
    std::optional<Forward> forward = {};
    std::vector<Argument> updated = {}; // outputs that are read as well as written
    bool rounds = false; // rounds in between: the oracle has to as well, so it runs in the type under test

    std::string op() const { return name.substr(0, name.find('/')); }
};

// In the order of the families of src/ops.
const std::vector<Case>& operator_cases();
// Those of attention and its gradient, which are among them.
std::vector<Case> attention_cases();
// The cases of attention and of its gradient at these sizes; `h` queries heads share `g` key heads.
struct AttentionSizes {
    std::string name;
    std::int64_t b, t, s, h, g, d, e;
    bool causal = true;
    double dropout = 0;
    std::optional<Shape> mask = {}, bias = {};
    bool sinks = false, documents = false;
    Attributes more = {};
};
std::pair<Case, Case> attention_and_gradient(const AttentionSizes& sizes);
// Any of its attributes and inputs together, with sizes up to these.
AttentionSizes drawn_attention(std::mt19937_64& random, int number, std::int64_t longest = 150,
                               std::int64_t largest_head = 40);
// Fewer and larger ones, of the widths of models: where kernels take whole packs of elements, many blocks and long
// sums.
const std::vector<Case>& large_cases();

DType dtype_of(Element element, DType tested);
Attributes attributes_of(const Case& one, DType tested);

// Layouts that inputs may have; each is tried where the operator accepts it.
enum class Look {
    dense,
    padded,       // rows with gaps between them, as slices of a fused tensor have
    permuted,     // the two dimensions before the last in the other order, as heads and positions have
    expanded,     // the first dimension repeats
    column_major, // the last dimension is the slowest: a transposed weight
    padded_columns,
    every_other, // nothing is contiguous
};
inline constexpr Look all_looks[] = {Look::dense,        Look::padded,         Look::permuted,   Look::expanded,
                                     Look::column_major, Look::padded_columns, Look::every_other};
std::string_view name_of(Look look);
Layout layout_of(Look look, const Shape& shape);

// The inputs of a case, rounded to the type under test; always the same values for the same case and look. Inputs whose
// look the operator does not accept are dense; nothing where that is all of them.
std::optional<std::vector<HostTensor>> make_inputs(const Case& one, DType tested, Look look = Look::dense);
// The outputs before a run: what they hold where they are updated or accumulated into, else garbage.
std::vector<HostTensor> make_outputs(const Case& one, DType tested, const std::vector<HostTensor>& inputs,
                                     Look look = Look::dense);
// The same values as another type under test, dense: what the oracle is given.
std::vector<HostTensor> in_type(const Case& one, DType tested, const std::vector<HostTensor>& inputs);

// The scalars that all cases run with, and the source that keys their random numbers.
StepScalars case_scalars();
inline const std::string case_source = "model.layers.3.dropout";

// Runs one kernel of the device on a case, with `outputs` as they are before; returns the scalars afterwards.
StepScalars run_operator(const backend::Device& device, const Case& one, DType tested,
                         const std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs,
                         RunOptions options = {});

// Whether an input may depend on parameters: masks and rotary tables may not, nor may integers.
bool is_differentiable(const Argument& argument);

// Views have no kernel: their outputs are read through the layouts that they declare. Everything else runs.
std::vector<HostTensor> evaluate(const backend::Device& device, const Operator& op, const Attributes& attributes,
                                 const std::vector<HostTensor>& inputs);

// How far results may be from the oracle's, relative to the largest magnitude of the output.
struct Tolerances {
    double tested; // outputs of the type under test
    double wide;   // float32 results of 16-bit inputs
};

// Every case, in every layout the operator accepts, accumulating and in place where the operator can, on `device` in
// the type `tested`, against `oracle` in float64 (where the case does not round in between) on the same rounded inputs.
// Returns a line per difference.
std::vector<std::string> compare_devices(const backend::Device& device, const backend::Device& oracle, DType tested,
                                         Tolerances tolerances, const std::vector<Case>& cases = operator_cases(),
                                         std::span<const Look> looks = all_looks);

// Operators, views apart, without a case or without a kernel for one of their cases in this type.
std::vector<std::string> missing_kernels(const backend::Device& device, DType tested);

// "linear/bias: output 0 ..." where the values differ by more than tolerance times the largest expected; else empty.
std::string difference(const std::string& what, const std::vector<double>& got, const std::vector<double>& expected,
                       double tolerance);

} // namespace tutti::testing

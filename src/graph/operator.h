// Operator: everything the rest of the program may know about an operation, in one value: its shapes, its gradient,
// its cost and its loop dims. Kernels live in backend/; graphs, passes and planners need only this.
#pragma once

#include "base/tensor_type.h"
#include "base/units.h"
#include "graph/attributes.h"
#include "graph/traits.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class GradientBuilder;

using Types = std::span<const TensorType>;

struct Cost {
    Flops flops;
    Bytes bytes; // read and written, each operand once
};

// What layouts every backend's kernel for an operator takes. The pass `materialise` copies inputs of others.
enum class Accepts {
    dense,   // row-major without gaps
    rows,    // the last dimension contiguous, the others anywhere
    matrix,  // collapses to a row- or column-major matrix
    strided, // anything
};

bool accepted(Accepts accepts, const Shape& shape, const Shape& strides);

struct Operator {
    std::string_view name;

    // Which loop each dimension of each operand belongs to, in the notation of graph/loops.h. Sizes and attributes
    // decide it for operators such as reshape; for most it is a constant text.
    std::function<std::string(Types inputs, const Attributes&)> loops = {};

    // Types of the outputs. Throws Error, naming the values, where the inputs do not fit.
    std::function<std::vector<TensorType>(Types inputs, const Attributes&)> infer = {};

    // Adds nodes that compute gradients of the inputs; empty where there are none (integers, comparisons).
    std::function<void(GradientBuilder&)> gradient = {};

    std::function<Cost(Types inputs, Types outputs, const Attributes&)> cost = {};

    // A view: outputs are the input's storage under other strides; no kernel runs. Empty result: these strides cannot
    // express it, the input has to be made dense first.
    std::function<std::optional<std::vector<Layout>>(const TensorType& input, const Layout&, const Attributes&)> view =
        {};
    // Of a view with one output and all of the input's elements: the input's layout that gives this one of the output.
    std::function<std::optional<Layout>(const Shape& input, const TensorType& output, const Layout&, const Attributes&)>
        view_back = {};

    // The attributes of the part [begin, begin + size) of a loop: for operators whose result depends on where in the
    // whole tensor they work (embedding, dropout) or whose attributes hold sizes (reshape).
    std::function<Attributes(Types inputs, const Attributes&, std::string_view loop, std::int64_t begin,
                             std::int64_t size)>
        part = {};

    Accepts accepts = Accepts::strided;        // of inputs
    Accepts writes = Accepts::dense;           // the layouts that outputs may have, those below apart
    int accumulates_from = -1;                 // kernels can add into the outputs from this one on, not only overwrite
    Accepts accumulates_into = Accepts::dense; // the layouts these outputs may have
    int overwrites = -1;                       // this input's buffer, where there is one, may become output 0
    Linear linear = Linear::none;              // whether partial sums pass through
    std::string_view drops = {};               // the attribute with the probability by which elements fall at random
    bool only_drops = false;                   // where none fall, the result is the first input
    bool changes = false;                      // from step to step, with the same inputs
    std::optional<AxisCollective> collective = {}; // no kernel: the ranks along an axis do it together

    // ---- What it is, for those who treat operators alike (graph/traits.h)
    std::string_view gradient_of = {};              // the operator of which this is a gradient
    std::optional<WeightProduct> product = {};      // a matrix product with a weight
    std::optional<TableLookup> lookup = {};         // looks rows of a table up
    std::string_view heads = {};                    // attention: the loop of its key heads, each for itself
    std::optional<ClassLoss> loss = {};             // of the scores of classes
    std::string_view after_sum = {};                // a normalisation: the operator of a sum and it (sum, result, ...)
    std::string_view without_sum = {};              // of such an operator: the normalisation alone
    std::optional<NormGradient> norm_gradient = {}; // a normalisation's input gradient
    std::optional<Pieces> pieces = {};              // takes a tensor apart, or joins pieces
    Arithmetic arithmetic = Arithmetic::none;       // a sum or product of two operands
    // An activation: what `gated` calls it.
    std::function<std::string(const Attributes&)> gate = {};
    int addend = -1;          // this last input may be missing; where it is there, it is added to the result
    bool is_copy = false;     // the result is the input in another layout or element type
    bool is_constant = false; // one value everywhere: as quick to make as to read
    bool stores_last = false; // gradients that it adds to or overwrites are stored when all inputs have been read
    KernelClass kernel_class = KernelClass::general; // which share of a peak its kernels reach
    std::optional<StepRole> step_role = {};          // of the end of a step, not of the model

    bool accumulates(std::size_t output) const {
        return accumulates_from >= 0 && output >= static_cast<std::size_t>(accumulates_from);
    }
};

// Whether the result depends on the step's random numbers, and with them on the node's source.
bool is_random(const Operator& op, const Attributes& attributes);

// The operators a graph may use, by name.
class OperatorSet {
  public:
    explicit OperatorSet(std::vector<Operator> operators);

    const Operator* find(std::string_view name) const;
    const Operator& at(std::string_view name) const; // Error where unknown
    std::span<const Operator> all() const { return operators_; }

  private:
    std::vector<Operator> operators_; // sorted by name
};

} // namespace tutti

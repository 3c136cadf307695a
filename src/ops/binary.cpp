// Elementwise arithmetic and comparison of two tensors, with NumPy's broadcasting, and where.
#include "ops/families.h"

#include <algorithm>

namespace tutti::ops {
namespace {

Shape broadcast(std::string_view op, Types in) {
    int rank = 0;
    for (const TensorType& type : in) rank = std::max(rank, type.shape.rank());
    Shape result;
    for (int d = 0; d < rank; ++d) {
        std::int64_t size = 1;
        for (const TensorType& type : in) {
            const int at = d - (rank - type.shape.rank());
            if (at < 0 || type.shape[at] == 1) continue;
            expect(size == 1 || size == type.shape[at], op, in, "the shapes do not broadcast");
            size = type.shape[at];
        }
        result.push_back(size);
    }
    return result;
}

// Dimension d of the result is loop "ld"; an operand that is broadcast there has no loop.
std::string broadcast_loops(std::string_view op, Types in) {
    const Shape result = broadcast(op, in);
    std::string text;
    for (std::size_t i = 0; i <= in.size(); ++i) {
        const Shape& shape = i < in.size() ? in[i].shape : result;
        if (i > 0) text += i < in.size() ? ", " : " -> ";
        for (int d = 0; d < shape.rank(); ++d) {
            const int at = d + result.rank() - shape.rank();
            text += shape[d] == 1 && result[at] != 1 ? " 1" : fmt::format(" l{}", at);
        }
    }
    return text;
}

enum class Kind { arithmetic, comparison, logic };

Operator binary(std::string_view name, Kind kind, std::function<void(GradientBuilder&)> gradient = {},
                int overwrites = -1, Linear linear = Linear::none, Arithmetic arithmetic = Arithmetic::none) {
    return {
        .name = name,
        .loops = [name](Types in, const Attributes&) { return broadcast_loops(name, in); },
        .infer = [name, kind](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs(name, in, 2, 2);
            expect(in[0].dtype == in[1].dtype, name, in, "takes two tensors of one element type");
            const bool boolean = in[0].dtype == DType::boolean;
            expect(boolean == (kind == Kind::logic), name, in,
                   kind == Kind::logic ? "takes booleans" : "does not take booleans");
            return {{kind == Kind::arithmetic ? in[0].dtype : DType::boolean, broadcast(name, in)}};
        },
        .gradient = std::move(gradient),
        .cost = streaming(1),
        .accepts = Accepts::strided,
        .writes = Accepts::rows,
        .overwrites = overwrites,
        .linear = linear,
        .arithmetic = arithmetic,
    };
}

// Sends `value` to input i, summed over what broadcasting added.
void send(GradientBuilder& g, std::size_t i, ValueId value) {
    if (g.wants(i)) g.set(i, g.reduce_to_input(value, i));
}

void multiply_gradient(GradientBuilder& g) {
    for (std::size_t i : {0u, 1u})
        if (g.wants(i)) send(g, i, g.emit("multiply", {g.gradient(), g.input(1 - i)}));
}

void divide_gradient(GradientBuilder& g) {
    const ValueId quotient = g.emit("divide", {g.gradient(), g.input(1)}); // dy / b
    send(g, 0, quotient);
    if (g.wants(1)) send(g, 1, g.emit("negate", {g.emit("multiply", {quotient, g.output(0)})}));
}

// maximum and minimum: the winner gets it all; the first where they are equal.
std::function<void(GradientBuilder&)> pick_gradient(std::string_view first_wins) {
    return [first_wins](GradientBuilder& g) {
        const ValueId first = g.emit(first_wins, {g.input(0), g.input(1)});
        const ValueId zero = g.constant(g.type(g.gradient()).dtype, 0);
        if (g.wants(0)) send(g, 0, g.emit("where", {first, g.gradient(), zero}));
        if (g.wants(1)) send(g, 1, g.emit("where", {first, zero, g.gradient()}));
    };
}

// where(condition, a, b)
Operator where() {
    return {
        .name = "where",
        .loops = [](Types in, const Attributes&) { return broadcast_loops("where", in); },
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("where", in, 3, 3);
            expect(in[0].dtype == DType::boolean && in[1].dtype == in[2].dtype, "where", in,
                   "takes a boolean condition and two tensors of one element type");
            return {{in[1].dtype, broadcast("where", in)}};
        },
        .gradient =
            [](GradientBuilder& g) {
                const ValueId zero = g.constant(g.type(g.gradient()).dtype, 0);
                if (g.wants(1)) send(g, 1, g.emit("where", {g.input(0), g.gradient(), zero}));
                if (g.wants(2)) send(g, 2, g.emit("where", {g.input(0), zero, g.gradient()}));
            },
        .cost = streaming(1),
        .accepts = Accepts::strided,
    };
}

} // namespace

std::vector<Operator> binary_operators() {
    return {
        binary(
            "add", Kind::arithmetic, [](GradientBuilder& g) { send(g, 0, g.gradient()), send(g, 1, g.gradient()); }, 0,
            Linear::joint, Arithmetic::sum),
        binary(
            "subtract", Kind::arithmetic,
            [](GradientBuilder& g) {
                send(g, 0, g.gradient());
                if (g.wants(1)) send(g, 1, g.emit("negate", {g.gradient()}));
            },
            0, Linear::joint),
        binary("multiply", Kind::arithmetic, multiply_gradient, 0, Linear::either, Arithmetic::product),
        binary("divide", Kind::arithmetic, divide_gradient, 0, Linear::first),
        binary("maximum", Kind::arithmetic, pick_gradient("greater_equal"), 0),
        binary("minimum", Kind::arithmetic, pick_gradient("less_equal"), 0),
        binary("equal", Kind::comparison),
        binary("not_equal", Kind::comparison),
        binary("less", Kind::comparison),
        binary("less_equal", Kind::comparison),
        binary("greater", Kind::comparison),
        binary("greater_equal", Kind::comparison),
        binary("logical_and", Kind::logic),
        binary("logical_or", Kind::logic),
        where(),
    };
}

} // namespace tutti::ops

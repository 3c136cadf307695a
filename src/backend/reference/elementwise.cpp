// Elementwise functions of one, two or three tensors, with NumPy's broadcasting. A NaN goes through all of them, so
// that a bad step is seen in its loss.
#include "backend/reference/dense.h"

#include <cmath>
#include <numbers>

namespace tutti::backend::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Phi, the normal distribution function: gelu(x) = x Phi(x).
double normal_cdf(double x) { return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }

// The tanh approximation's argument: sqrt(2/pi) (x + 0.044715 x^3).
const double root_two_over_pi = std::sqrt(2 / std::numbers::pi);
double gelu_inner(double x) { return root_two_over_pi * (x + 0.044715 * x * x * x); }

double gelu(double x, bool tanh) { return x * (tanh ? 0.5 * (1 + std::tanh(gelu_inner(x))) : normal_cdf(x)); }

double gelu_slope(double x, bool tanh) {
    if (!tanh) return normal_cdf(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    const double t = std::tanh(gelu_inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_two_over_pi * (1 + 3 * 0.044715 * x * x);
}

// y = f(x)
template <class Function>
Formula unary(std::string op, Function f) {
    return {std::move(op), [f](const Call& c) {
                for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] = f(c.in[0][i]);
            }};
}

// dx = f'(x) dy, from dy and x
template <class Slope>
Formula through(std::string op, Slope slope) {
    return {std::move(op), [slope](const Call& c) {
                for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] = c.in[0][i] * slope(c.in[1][i]);
            }};
}

// y = f(a, b), broadcast
template <class Function>
Formula binary(std::string op, Function f) {
    return {std::move(op), [f](const Call& c) {
                const Tensor &a = c.in[0], &b = c.in[1];
                double* to = c.out[0].data;
                for_each_index(c.out[0].shape, [&](const Shape& index) {
                    *to++ = f(a[offset_of(a.shape, index)], b[offset_of(b.shape, index)]);
                });
            }};
}

void gelu_forward(const Call& c) {
    const bool tanh = c.attributes.flag("tanh");
    for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] = gelu(c.in[0][i], tanh);
}

void gelu_backward(const Call& c) {
    const bool tanh = c.attributes.flag("tanh");
    for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] = c.in[0][i] * gelu_slope(c.in[1][i], tanh);
}

// ---- Gated activations, by name

double activation(const std::string& name, double x) {
    if (name == "silu") return x * sigmoid(x);
    if (name == "relu") return x < 0 ? 0 : x;
    return gelu(x, name == "gelu_tanh");
}

double activation_slope(const std::string& name, double x) {
    if (name == "silu") return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    if (name == "relu") return x > 0 ? 1 : 0;
    return gelu_slope(x, name == "gelu_tanh");
}

void gated(const Call& c) {
    const std::string& name = c.attributes.text("activation");
    for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] = activation(name, c.in[0][i]) * c.in[1][i];
}

void gated_gradient(const Call& c) {
    const std::string& name = c.attributes.text("activation");
    const Tensor &dy = c.in[0], &gate = c.in[1], &up = c.in[2];
    for (std::int64_t i = 0; i < dy.elements(); ++i) {
        c.out[0][i] = dy[i] * up[i] * activation_slope(name, gate[i]);
        c.out[1][i] = dy[i] * activation(name, gate[i]);
    }
}

void where(const Call& c) {
    const Tensor &condition = c.in[0], &a = c.in[1], &b = c.in[2];
    double* to = c.out[0].data;
    for_each_index(c.out[0].shape, [&](const Shape& index) {
        *to++ = condition[offset_of(condition.shape, index)] != 0 ? a[offset_of(a.shape, index)]
                                                                  : b[offset_of(b.shape, index)];
    });
}

} // namespace

std::vector<Formula> unary_formulas() {
    return {
        {"gelu", gelu_forward},
        {"gelu_gradient", gelu_backward},
        unary("silu", [](double x) { return x * sigmoid(x); }),
        through("silu_gradient", [](double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }),
        unary("relu", [](double x) { return x < 0 ? 0 : x; }),
        through("relu_gradient", [](double x) { return x > 0 ? 1 : 0; }),
        unary("negate", [](double x) { return -x; }),
        unary("exp", [](double x) { return std::exp(x); }),
        unary("log", [](double x) { return std::log(x); }),
        unary("sqrt", [](double x) { return std::sqrt(x); }),
        unary("rsqrt", [](double x) { return 1 / std::sqrt(x); }),
        unary("tanh", [](double x) { return std::tanh(x); }),
        unary("sigmoid", sigmoid),
        unary("erf", [](double x) { return std::erf(x); }),
        unary("sin", [](double x) { return std::sin(x); }),
        unary("cos", [](double x) { return std::cos(x); }),
        unary("cast", [](double x) { return x; }), // storing converts
    };
}

std::vector<Formula> binary_formulas() {
    return {
        binary("add", [](double a, double b) { return a + b; }),
        binary("subtract", [](double a, double b) { return a - b; }),
        binary("multiply", [](double a, double b) { return a * b; }),
        binary("divide", [](double a, double b) { return a / b; }), // storing integers rounds towards zero
        binary("maximum", [](double a, double b) { return a >= b || std::isnan(a) ? a : b; }),
        binary("minimum", [](double a, double b) { return a <= b || std::isnan(a) ? a : b; }),
        binary("equal", [](double a, double b) { return a == b; }),
        binary("not_equal", [](double a, double b) { return a != b; }),
        binary("less", [](double a, double b) { return a < b; }),
        binary("less_equal", [](double a, double b) { return a <= b; }),
        binary("greater", [](double a, double b) { return a > b; }),
        binary("greater_equal", [](double a, double b) { return a >= b; }),
        binary("logical_and", [](double a, double b) { return a != 0 && b != 0; }),
        binary("logical_or", [](double a, double b) { return a != 0 || b != 0; }),
        {"where", where},
        {"gated", gated},
        {"gated_gradient", gated_gradient},
    };
}

} // namespace tutti::backend::reference

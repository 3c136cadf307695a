// Elementwise functions over elements without gaps.
#include "backend/cpu/simd/parts.h"

#include <cmath>

namespace tutti::backend::cpu::TUTTI_ISA {
namespace {

struct Boolean {
    std::uint8_t value;
};
TUTTI_INLINE std::int64_t load(const std::int64_t* p) { return *p; }
TUTTI_INLINE std::int32_t load(const std::int32_t* p) { return *p; }
TUTTI_INLINE bool load(const Boolean* p) { return p->value != 0; }
TUTTI_INLINE void store(std::int64_t* p, std::int64_t x) { *p = x; }
TUTTI_INLINE void store(std::int32_t* p, std::int32_t x) { *p = x; }
TUTTI_INLINE void store(Boolean* p, bool x) { p->value = x; }
using cpu::TUTTI_ISA::load;
using cpu::TUTTI_ISA::store;

// u(x) = sqrt(2/pi) (x + 0.044715 x^3): the tanh form of gelu is x sigmoid(2u).
constexpr float gelu_cubic = 0.044715f, gelu_root = 0.7978845608028654f, half_root = 0.70710678118654752f;

TUTTI_INLINE float gelu_tanh(float x) { return x * sigmoid(2 * gelu_root * (x + gelu_cubic * x * x * x)); }
TUTTI_INLINE float gelu_tanh_slope(float x) {
    const float s = sigmoid(2 * gelu_root * (x + gelu_cubic * x * x * x));
    return s + x * s * (1 - s) * (2 * gelu_root * (1 + 3 * gelu_cubic * x * x));
}
TUTTI_INLINE float gelu(float x) { return 0.5f * x * (1 + error_function(x * half_root)); }
TUTTI_INLINE float gelu_slope(float x) {
    const float density = 0.3989422804014327f * exponential(-0.5f * x * x);
    return 0.5f * (1 + error_function(x * half_root)) + x * density;
}
TUTTI_INLINE float silu_slope(float x) {
    const float s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

template <class T, class Function>
TUTTI_INLINE void each(const std::byte* const* in, std::byte* out, std::int64_t count, Function function) {
    const T* x = reinterpret_cast<const T*>(in[0]);
    T* y = reinterpret_cast<T*>(out);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) store(&y[i], function(load(&x[i])));
}

template <class T, class Result, class Function>
TUTTI_INLINE void pairwise(const std::byte* const* in, std::byte* out, std::int64_t count, Function function) {
    const T* a = reinterpret_cast<const T*>(in[0]);
    const T* b = reinterpret_cast<const T*>(in[1]);
    Result* y = reinterpret_cast<Result*>(out);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) store(&y[i], function(load(&a[i]), load(&b[i])));
}

#define UNARY(expression)                                                                                              \
    [](const std::byte* const* in, std::byte* out, std::int64_t count) {                                               \
        each<T>(in, out, count, [](float x) [[gnu::always_inline]] { return expression; });                            \
    }
#define BINARY(Result, expression)                                                                                     \
    [](const std::byte* const* in, std::byte* out, std::int64_t count) {                                               \
        pairwise<T, Result>(in, out, count, [](auto a, auto b) [[gnu::always_inline]] { return expression; });         \
    }

template <class T>
ElementFunction floating(ElementOp op) {
    switch (op) {
    case ElementOp::negate: return UNARY(-x);
    case ElementOp::exp: return UNARY(exponential(x));
    case ElementOp::log: return UNARY(__builtin_logf(x));
    case ElementOp::sqrt: return UNARY(__builtin_sqrtf(x));
    case ElementOp::rsqrt: return UNARY(1 / __builtin_sqrtf(x));
    case ElementOp::tanh: return UNARY(hyperbolic_tangent(x));
    case ElementOp::sigmoid: return UNARY(sigmoid(x));
    case ElementOp::erf: return UNARY(error_function(x));
    case ElementOp::sin: return UNARY(__builtin_sinf(x));
    case ElementOp::cos: return UNARY(__builtin_cosf(x));
    case ElementOp::gelu: return UNARY(gelu(x));
    case ElementOp::gelu_tanh: return UNARY(gelu_tanh(x));
    case ElementOp::silu: return UNARY(x * sigmoid(x));
    case ElementOp::relu: return UNARY(x < 0 ? 0.0f : x);
    case ElementOp::gelu_gradient: return BINARY(T, a * gelu_slope(b));
    case ElementOp::gelu_tanh_gradient: return BINARY(T, a * gelu_tanh_slope(b));
    case ElementOp::silu_gradient: return BINARY(T, a * silu_slope(b));
    case ElementOp::relu_gradient: return BINARY(T, b > 0 ? a : 0.0f);
    case ElementOp::gated_gelu: return BINARY(T, gelu(a) * b);
    case ElementOp::gated_gelu_tanh: return BINARY(T, gelu_tanh(a) * b);
    case ElementOp::gated_silu: return BINARY(T, a * sigmoid(a) * b);
    case ElementOp::gated_relu: return BINARY(T, (a < 0 ? 0.0f : a) * b);
    default: return nullptr;
    }
}

template <class T>
ElementFunction arithmetic(ElementOp op) {
    constexpr bool integral = sizeof(T) == 8 || std::is_same_v<T, std::int32_t>;
    switch (op) {
    case ElementOp::add: return BINARY(T, a + b);
    case ElementOp::subtract: return BINARY(T, a - b);
    case ElementOp::multiply: return BINARY(T, a * b);
    case ElementOp::divide:
        if constexpr (integral)
            return BINARY(T, b == 0 ? 0 : a / b); // no trap
        else
            return BINARY(T, a / b);
    // NaN wins, as in PyTorch.
    case ElementOp::maximum: return BINARY(T, a >= b || a != a ? a : b);
    case ElementOp::minimum: return BINARY(T, a <= b || a != a ? a : b);
    case ElementOp::equal: return BINARY(Boolean, a == b);
    case ElementOp::not_equal: return BINARY(Boolean, a != b);
    case ElementOp::less: return BINARY(Boolean, a < b);
    case ElementOp::less_equal: return BINARY(Boolean, a <= b);
    case ElementOp::greater: return BINARY(Boolean, a > b);
    case ElementOp::greater_equal: return BINARY(Boolean, a >= b);
    default: return nullptr;
    }
}

ElementFunction logic(ElementOp op) {
    using T = Boolean;
    switch (op) {
    case ElementOp::logical_and: return BINARY(Boolean, a && b);
    case ElementOp::logical_or: return BINARY(Boolean, a || b);
    default: return nullptr;
    }
}

template <class From, class To>
void add_to(const std::byte* const* in, std::byte* out, std::int64_t count) {
    const To* sum = reinterpret_cast<const To*>(in[0]);
    const From* x = reinterpret_cast<const From*>(in[1]);
    To* y = reinterpret_cast<To*>(out);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) store(&y[i], load(&sum[i]) + load(&x[i]));
}

// dgate = dy up f'(gate), dup = dy f(gate)
template <class T, class Function, class Slope>
TUTTI_INLINE void gated_gradient(const std::byte* const* in, std::byte* gate_gradient, std::byte* up_gradient,
                                 std::int64_t count, Function function, Slope slope) {
    const T* dy = reinterpret_cast<const T*>(in[0]);
    const T* gate = reinterpret_cast<const T*>(in[1]);
    const T* up = reinterpret_cast<const T*>(in[2]);
    T* dgate = reinterpret_cast<T*>(gate_gradient);
    T* dup = reinterpret_cast<T*>(up_gradient);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float d = load(&dy[i]), g = load(&gate[i]);
        store(&dgate[i], d * load(&up[i]) * slope(g));
        store(&dup[i], d * function(g));
    }
}

#define GATED(function, slope)                                                                                         \
    [](const std::byte* const* in, std::byte* gate_gradient, std::byte* up_gradient, std::int64_t count) {             \
        gated_gradient<T>(                                                                                             \
            in, gate_gradient, up_gradient, count, [](float x) [[gnu::always_inline]] { return function; },            \
            [](float x) [[gnu::always_inline]] { return slope; });                                                     \
    }

template <class T>
GatedGradientFunction gated(ElementOp op) {
    switch (op) {
    case ElementOp::gated_gelu: return GATED(gelu(x), gelu_slope(x));
    case ElementOp::gated_gelu_tanh: return GATED(gelu_tanh(x), gelu_tanh_slope(x));
    case ElementOp::gated_silu: return GATED(x * sigmoid(x), silu_slope(x));
    case ElementOp::gated_relu: return GATED(x < 0 ? 0.0f : x, x > 0 ? 1.0f : 0.0f);
    default: return nullptr;
    }
}

} // namespace

GatedGradientFunction gated_gradient_function(ElementOp op, DType dtype) {
    if (dtype == DType::float32) return gated<float>(op);
    if (dtype == DType::bfloat16) return gated<BFloat16>(op);
    return nullptr;
}

ElementFunction element_function(ElementOp op, DType dtype) {
    switch (dtype) {
    case DType::float32: {
        const ElementFunction found = floating<float>(op);
        return found ? found : arithmetic<float>(op);
    }
    case DType::bfloat16: {
        const ElementFunction found = floating<BFloat16>(op);
        return found ? found : arithmetic<BFloat16>(op);
    }
    case DType::int64: return arithmetic<std::int64_t>(op);
    case DType::int32: return arithmetic<std::int32_t>(op);
    case DType::boolean: return logic(op);
    default: return nullptr;
    }
}

ElementFunction accumulate_function(DType from, DType to) {
    if (to == DType::float32 && from == DType::float32) return add_to<float, float>;
    if (to == DType::float32 && from == DType::bfloat16) return add_to<BFloat16, float>;
    if (to == DType::bfloat16 && from == DType::bfloat16) return add_to<BFloat16, BFloat16>;
    if (to == DType::bfloat16 && from == DType::float32) return add_to<float, BFloat16>;
    if (to == DType::int64 && from == DType::int64) return add_to<std::int64_t, std::int64_t>;
    if (to == DType::int32 && from == DType::int32) return add_to<std::int32_t, std::int32_t>;
    return nullptr;
}

} // namespace tutti::backend::cpu::TUTTI_ISA

// Elementwise functions of one tensor, and gradients of activations from dy and x. Computed in float; for bf16 by the
// hardware's approximations, whose errors are far below its rounding.
#include "backend/cuda/elementwise.h"

namespace tutti::backend::cuda {
namespace {

template <class T>
constexpr bool precise = std::is_same_v<T, float>;

template <class T>
__device__ float exponential(float x) {
    return precise<T> ? expf(x) : __expf(x);
}
template <class T>
__device__ float sigmoid(float x) {
    return precise<T> ? 1.0f / (1.0f + expf(-x)) : __fdividef(1.0f, 1.0f + __expf(-x));
}

// u(x) = sqrt(2/pi) (x + 0.044715 x^3): the tanh form of gelu is x sigmoid(2u).
constexpr float gelu_cubic = 0.044715f, gelu_root = 0.7978845608028654f, half_root = 0.70710678118654752f;

template <class T>
struct GeluTanh {
    __device__ float operator()(float x) const { return x * sigmoid<T>(2 * gelu_root * (x + gelu_cubic * x * x * x)); }
};
template <class T>
struct GeluTanhGradient {
    __device__ float operator()(float dy, float x) const {
        const float s = sigmoid<T>(2 * gelu_root * (x + gelu_cubic * x * x * x));
        return dy * (s + x * s * (1 - s) * (2 * gelu_root * (1 + 3 * gelu_cubic * x * x)));
    }
};
template <class T>
struct Gelu {
    __device__ float operator()(float x) const { return 0.5f * x * (1 + erff(x * half_root)); }
};
template <class T>
struct GeluGradient {
    __device__ float operator()(float dy, float x) const {
        const float density = 0.3989422804014327f * exponential<T>(-0.5f * x * x);
        return dy * (0.5f * (1 + erff(x * half_root)) + x * density);
    }
};
template <class T>
struct Silu {
    __device__ float operator()(float x) const { return x * sigmoid<T>(x); }
};
template <class T>
struct SiluGradient {
    __device__ float operator()(float dy, float x) const {
        const float s = sigmoid<T>(x);
        return dy * (s * (1 + x * (1 - s)));
    }
};
template <class T>
struct Relu {
    __device__ float operator()(float x) const { return x < 0 ? 0.0f : x; }
};
template <class T>
struct ReluGradient {
    __device__ float operator()(float dy, float x) const { return x > 0 ? dy : 0.0f; }
};
template <class T>
struct Negate {
    __device__ float operator()(float x) const { return -x; }
};
template <class T>
struct Exp {
    __device__ float operator()(float x) const { return exponential<T>(x); }
};
template <class T>
struct Log {
    __device__ float operator()(float x) const { return logf(x); }
};
template <class T>
struct Sqrt {
    __device__ float operator()(float x) const { return sqrtf(x); }
};
template <class T>
struct Rsqrt {
    __device__ float operator()(float x) const { return 1.0f / sqrtf(x); }
};
template <class T>
struct Tanh {
    __device__ float operator()(float x) const { return tanhf(x); }
};
template <class T>
struct Sigmoid {
    __device__ float operator()(float x) const { return sigmoid<T>(x); }
};
template <class T>
struct Erf {
    __device__ float operator()(float x) const { return erff(x); }
};
template <class T>
struct Sin {
    __device__ float operator()(float x) const { return sinf(x); }
};
template <class T>
struct Cos {
    __device__ float operator()(float x) const { return cosf(x); }
};

// y = f(x)
template <template <class> class Function>
std::unique_ptr<Kernel> prepare_unary(const KernelRequest& request) {
    return for_floating(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<ElementKernel<Function<T>, T, T>>(request);
    });
}

// dx = f(dy, x)
template <template <class> class Function>
std::unique_ptr<Kernel> prepare_gradient(const KernelRequest& request) {
    return for_floating(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<ElementKernel<Function<T>, T, T, T>>(request);
    });
}

} // namespace

void add_element_kernels(KernelTable& table) {
    table.add("negate", PrepareKernel(prepare_unary<Negate>));
    table.add("exp", PrepareKernel(prepare_unary<Exp>));
    table.add("log", PrepareKernel(prepare_unary<Log>));
    table.add("sqrt", PrepareKernel(prepare_unary<Sqrt>));
    table.add("rsqrt", PrepareKernel(prepare_unary<Rsqrt>));
    table.add("tanh", PrepareKernel(prepare_unary<Tanh>));
    table.add("sigmoid", PrepareKernel(prepare_unary<Sigmoid>));
    table.add("erf", PrepareKernel(prepare_unary<Erf>));
    table.add("sin", PrepareKernel(prepare_unary<Sin>));
    table.add("cos", PrepareKernel(prepare_unary<Cos>));
    table.add("silu", PrepareKernel(prepare_unary<Silu>));
    table.add("relu", PrepareKernel(prepare_unary<Relu>));
    table.add("silu_gradient", PrepareKernel(prepare_gradient<SiluGradient>));
    table.add("relu_gradient", PrepareKernel(prepare_gradient<ReluGradient>));
    table.add("gelu", PrepareKernel([](const KernelRequest& request) {
                  return request.attributes.flag("tanh") ? prepare_unary<GeluTanh>(request)
                                                         : prepare_unary<Gelu>(request);
              }));
    table.add("gelu_gradient", PrepareKernel([](const KernelRequest& request) {
                  return request.attributes.flag("tanh") ? prepare_gradient<GeluTanhGradient>(request)
                                                         : prepare_gradient<GeluGradient>(request);
              }));
    add_binary_kernels(table);
    add_cast_kernels(table);
}

} // namespace tutti::backend::cuda

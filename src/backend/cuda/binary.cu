// Elementwise arithmetic and comparison of two tensors, and where, with broadcasting.
#include "backend/cuda/elementwise.h"

namespace tutti::backend::cuda {
namespace {

struct Add {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a + b;
    }
};
struct Subtract {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a - b;
    }
};
struct Multiply {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a * b;
    }
};
struct Divide {
    template <class V>
    __device__ V operator()(V a, V b) const {
        if constexpr (std::is_integral_v<V>)
            return b == 0 ? 0 : a / b;
        else
            return a / b;
    }
};
// NaN wins, as in PyTorch.
struct Maximum {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a >= b || a != a ? a : b;
    }
};
struct Minimum {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a <= b || a != a ? a : b;
    }
};
struct Equal {
    template <class V>
    __device__ bool operator()(V a, V b) const {
        return a == b;
    }
};
struct NotEqual {
    template <class V>
    __device__ bool operator()(V a, V b) const {
        return a != b;
    }
};
struct Less {
    template <class V>
    __device__ bool operator()(V a, V b) const {
        return a < b;
    }
};
struct LessEqual {
    template <class V>
    __device__ bool operator()(V a, V b) const {
        return a <= b;
    }
};
struct Greater {
    template <class V>
    __device__ bool operator()(V a, V b) const {
        return a > b;
    }
};
struct GreaterEqual {
    template <class V>
    __device__ bool operator()(V a, V b) const {
        return a >= b;
    }
};
struct LogicalAnd {
    __device__ bool operator()(bool a, bool b) const { return a && b; }
};
struct LogicalOr {
    __device__ bool operator()(bool a, bool b) const { return a || b; }
};
struct Choose {
    template <class V>
    __device__ V operator()(bool condition, V a, V b) const {
        return condition ? a : b;
    }
};

template <class Function>
std::unique_ptr<Kernel> prepare_arithmetic(const KernelRequest& request) {
    return for_number(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<ElementKernel<Function, T, T, T>>(request);
    });
}

template <class Function>
std::unique_ptr<Kernel> prepare_comparison(const KernelRequest& request) {
    return for_number(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<ElementKernel<Function, Boolean, T, T>>(request);
    });
}

template <class Function>
std::unique_ptr<Kernel> prepare_logic(const KernelRequest& request) {
    return std::make_unique<ElementKernel<Function, Boolean, Boolean, Boolean>>(request);
}

std::unique_ptr<Kernel> prepare_where(const KernelRequest& request) {
    return for_size(request.outputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<ElementKernel<Choose, T, Boolean, T, T>>(request);
    });
}

} // namespace

void add_binary_kernels(KernelTable& table) {
    table.add("add", PrepareKernel(prepare_arithmetic<Add>));
    table.add("subtract", PrepareKernel(prepare_arithmetic<Subtract>));
    table.add("multiply", PrepareKernel(prepare_arithmetic<Multiply>));
    table.add("divide", PrepareKernel(prepare_arithmetic<Divide>));
    table.add("maximum", PrepareKernel(prepare_arithmetic<Maximum>));
    table.add("minimum", PrepareKernel(prepare_arithmetic<Minimum>));
    table.add("equal", PrepareKernel(prepare_comparison<Equal>));
    table.add("not_equal", PrepareKernel(prepare_comparison<NotEqual>));
    table.add("less", PrepareKernel(prepare_comparison<Less>));
    table.add("less_equal", PrepareKernel(prepare_comparison<LessEqual>));
    table.add("greater", PrepareKernel(prepare_comparison<Greater>));
    table.add("greater_equal", PrepareKernel(prepare_comparison<GreaterEqual>));
    table.add("logical_and", PrepareKernel(prepare_logic<LogicalAnd>));
    table.add("logical_or", PrepareKernel(prepare_logic<LogicalOr>));
    table.add("where", PrepareKernel(prepare_where));
}

} // namespace tutti::backend::cuda

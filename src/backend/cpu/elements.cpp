// Elementwise kernels: functions of one, two or three tensors with broadcasting, casts, and accumulation.
#include "backend/cpu/kernels.h"
#include "backend/cpu/walk.h"

#include <map>

namespace tutti::backend::cpu {
namespace {

class ElementKernel : public Kernel {
  public:
    // `updates`: the output's old elements come first among the function's inputs.
    ElementKernel(const KernelRequest& request, ElementFunction function, bool updates = false)
        : walk_(request.outputs[0], operands(request, updates)), function_(function), updates_(updates) {}

    void run(const Launch& launch) const override {
        parallel_for(walk_.pieces(), Walk::piece, [&](std::int64_t index) {
            alignas(64) Walk::Buffer buffers[4];
            const std::byte* in[3];
            const std::size_t shift = updates_ ? 1 : 0;
            if (updates_) in[0] = walk_.read(0, launch.outputs[0], index, buffers[0]);
            for (std::size_t i = 0; i < launch.inputs.size(); ++i)
                in[i + shift] = walk_.read(i + shift, launch.inputs[i], index, buffers[i + shift]);
            std::byte* out = walk_.open(launch.outputs[0], index, buffers[3]);
            function_(in, out, walk_.count(index));
            if (out == buffers[3]) walk_.finish(launch.outputs[0], index, out);
        });
    }

  private:
    static std::vector<Operand> operands(const KernelRequest& request, bool updates) {
        std::vector<Operand> all = request.inputs;
        if (updates) all.insert(all.begin(), request.outputs[0]);
        return all;
    }

    Walk walk_;
    ElementFunction function_;
    bool updates_;
};

std::unique_ptr<Kernel> make(const KernelRequest& request, ElementFunction function, bool updates = false) {
    if (function == nullptr) fail_unsupported(backend_name, request);
    return std::make_unique<ElementKernel>(request, function, updates);
}

// ---- where

template <class T>
void choose_elements(const std::byte* const* in, std::byte* out, std::int64_t count) {
    const auto* condition = reinterpret_cast<const std::uint8_t*>(in[0]);
    const T *a = reinterpret_cast<const T*>(in[1]), *b = reinterpret_cast<const T*>(in[2]);
    T* y = reinterpret_cast<T*>(out);
    for (std::int64_t i = 0; i < count; ++i) y[i] = condition[i] ? a[i] : b[i];
}

std::unique_ptr<Kernel> prepare_where(const KernelRequest& request) {
    switch (size_of(request.outputs[0].type.dtype)) {
    case 1: return make(request, choose_elements<std::uint8_t>);
    case 2: return make(request, choose_elements<std::uint16_t>);
    case 4: return make(request, choose_elements<std::uint32_t>);
    default: return make(request, choose_elements<std::uint64_t>);
    }
}

// ---- cast

struct Boolean {
    std::uint8_t value = 0;
};

template <class From>
auto value_of(From x) {
    if constexpr (std::is_same_v<From, Boolean>)
        return static_cast<int>(x.value != 0);
    else if constexpr (std::is_arithmetic_v<From>)
        return x;
    else
        return static_cast<float>(x);
}

template <class From, class To>
void cast_elements(const std::byte* const* in, std::byte* out, std::int64_t count) {
    const From* x = reinterpret_cast<const From*>(in[0]);
    To* y = reinterpret_cast<To*>(out);
    for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_same_v<From, To>)
            y[i] = x[i];
        else if constexpr (std::is_same_v<To, Boolean>)
            y[i].value = value_of(x[i]) != 0;
        else if constexpr (std::is_arithmetic_v<To>)
            y[i] = static_cast<To>(value_of(x[i]));
        else
            y[i] = To(static_cast<float>(value_of(x[i])));
    }
}

void widen_elements(const std::byte* const* in, std::byte* out, std::int64_t count) {
    simd().bfloat16_rows.widen(reinterpret_cast<const BFloat16*>(in[0]), reinterpret_cast<float*>(out), count);
}
void narrow_elements(const std::byte* const* in, std::byte* out, std::int64_t count) {
    simd().bfloat16_rows.narrow(reinterpret_cast<const float*>(in[0]), reinterpret_cast<BFloat16*>(out), count);
}

template <class From>
ElementFunction cast_from(DType to) {
    switch (to) {
    case DType::float64: return cast_elements<From, double>;
    case DType::float32: return cast_elements<From, float>;
    case DType::bfloat16: return cast_elements<From, BFloat16>;
    case DType::float16: return cast_elements<From, Float16>;
    case DType::int64: return cast_elements<From, std::int64_t>;
    case DType::int32: return cast_elements<From, std::int32_t>;
    case DType::boolean: return cast_elements<From, Boolean>;
    }
    return nullptr;
}

ElementFunction cast_function(DType from, DType to) {
    if (from == DType::bfloat16 && to == DType::float32) return widen_elements;
    if (from == DType::float32 && to == DType::bfloat16) return narrow_elements;
    switch (from) {
    case DType::float64: return cast_from<double>(to);
    case DType::float32: return cast_from<float>(to);
    case DType::bfloat16: return cast_from<BFloat16>(to);
    case DType::float16: return cast_from<Float16>(to);
    case DType::int64: return cast_from<std::int64_t>(to);
    case DType::int32: return cast_from<std::int32_t>(to);
    case DType::boolean: return cast_from<Boolean>(to);
    }
    return nullptr;
}

std::unique_ptr<Kernel> prepare_cast(const KernelRequest& request) {
    return make(request, cast_function(request.inputs[0].type.dtype, request.outputs[0].type.dtype));
}

std::unique_ptr<Kernel> prepare_accumulate(const KernelRequest& request) {
    if (!request.accumulate) return prepare_cast(request);
    return make(request, simd().accumulate(request.inputs[0].type.dtype, request.outputs[0].type.dtype), true);
}

// ---- gated

ElementOp gated_of(const KernelRequest& request) {
    const std::string& activation = request.attributes.text("activation");
    if (activation == "gelu") return ElementOp::gated_gelu;
    if (activation == "gelu_tanh") return ElementOp::gated_gelu_tanh;
    return activation == "relu" ? ElementOp::gated_relu : ElementOp::gated_silu;
}

// Both gradients of a piece at once. The second is walked like an input.
class GatedGradient : public Kernel {
  public:
    explicit GatedGradient(const KernelRequest& request)
        : walk_(request.outputs[0], operands(request)),
          function_(simd().gated_gradient(gated_of(request), request.inputs[0].type.dtype)) {
        if (function_ == nullptr) fail_unsupported(backend_name, request);
    }

    void run(const Launch& launch) const override {
        parallel_for(walk_.pieces(), Walk::piece, [&](std::int64_t index) {
            alignas(64) Walk::Buffer buffers[5];
            const std::byte* in[3];
            for (std::size_t i = 0; i < 3; ++i) in[i] = walk_.read(i, launch.inputs[i], index, buffers[i]);
            std::byte* gate = walk_.open(launch.outputs[0], index, buffers[3]);
            std::byte* up = walk_.open(3, launch.outputs[1], index, buffers[4]);
            function_(in, gate, up, walk_.count(index));
            if (gate == buffers[3]) walk_.finish(launch.outputs[0], index, gate);
            if (up == buffers[4]) walk_.finish(3, launch.outputs[1], index, up);
        });
    }

  private:
    static std::vector<Operand> operands(const KernelRequest& request) {
        std::vector<Operand> all = request.inputs;
        all.push_back(request.outputs[1]);
        return all;
    }

    Walk walk_;
    GatedGradientFunction function_;
};

} // namespace

void add_element_kernels(KernelTable& table) {
    const std::map<std::string, ElementOp> simple = {
        {"negate", ElementOp::negate},
        {"exp", ElementOp::exp},
        {"log", ElementOp::log},
        {"sqrt", ElementOp::sqrt},
        {"rsqrt", ElementOp::rsqrt},
        {"tanh", ElementOp::tanh},
        {"sigmoid", ElementOp::sigmoid},
        {"erf", ElementOp::erf},
        {"sin", ElementOp::sin},
        {"cos", ElementOp::cos},
        {"silu", ElementOp::silu},
        {"relu", ElementOp::relu},
        {"silu_gradient", ElementOp::silu_gradient},
        {"relu_gradient", ElementOp::relu_gradient},
        {"add", ElementOp::add},
        {"subtract", ElementOp::subtract},
        {"multiply", ElementOp::multiply},
        {"divide", ElementOp::divide},
        {"maximum", ElementOp::maximum},
        {"minimum", ElementOp::minimum},
        {"equal", ElementOp::equal},
        {"not_equal", ElementOp::not_equal},
        {"less", ElementOp::less},
        {"less_equal", ElementOp::less_equal},
        {"greater", ElementOp::greater},
        {"greater_equal", ElementOp::greater_equal},
        {"logical_and", ElementOp::logical_and},
        {"logical_or", ElementOp::logical_or},
    };
    for (const auto& [name, op] : simple)
        table.add(name, PrepareKernel([op = op](const KernelRequest& request) {
                      return make(request, simd().element(op, request.inputs[0].type.dtype));
                  }));
    auto add_gelu = [&](const char* name, ElementOp exact, ElementOp approximate) {
        table.add(name, PrepareKernel([=](const KernelRequest& request) {
                      const ElementOp op = request.attributes.flag("tanh") ? approximate : exact;
                      return make(request, simd().element(op, request.inputs[0].type.dtype));
                  }));
    };
    add_gelu("gelu", ElementOp::gelu, ElementOp::gelu_tanh);
    add_gelu("gelu_gradient", ElementOp::gelu_gradient, ElementOp::gelu_tanh_gradient);
    table.add("gated", PrepareKernel([](const KernelRequest& request) {
                  return make(request, simd().element(gated_of(request), request.inputs[0].type.dtype));
              }));
    table.add("gated_gradient",
              PrepareKernel([](const KernelRequest& request) { return std::make_unique<GatedGradient>(request); }));
    table.add("where", PrepareKernel(prepare_where));
    table.add("cast", PrepareKernel(prepare_cast));
    table.add("accumulate", PrepareKernel(prepare_accumulate));
}

} // namespace tutti::backend::cpu

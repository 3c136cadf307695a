// Normalisation of rows, and the gradients with respect to the rows alone. Those of scale and shift are in columns.cpp.
#include "backend/cpu/kernels.h"

namespace tutti::backend::cpu {
namespace {

template <class T>
class LayerNorm : public Kernel {
  public:
    explicit LayerNorm(const KernelRequest& request)
        : x_(request.inputs[0]), y_(request.outputs[0]), eps_(static_cast<float>(request.attributes.real("eps"))) {}

    void run(const Launch& l) const override {
        const bool affine = l.inputs.size() == 3;
        const T *scale = affine ? l.in<T>(1) : nullptr, *shift = affine ? l.in<T>(2) : nullptr;
        parallel_for(x_.count(), x_.width(), [&](std::int64_t i) {
            simd().rows<T>().layer_norm(l.in<T>(0) + x_[i], scale, shift, l.out<T>(0) + y_[i], x_.width(), eps_,
                                        l.out<float>(1) + i, l.out<float>(2) + i);
        });
    }

  private:
    Rows x_, y_;
    float eps_;
};

template <class T>
class LayerNormInputGradient : public Kernel {
  public:
    explicit LayerNormInputGradient(const KernelRequest& request)
        : dy_(request.inputs[0]), x_(request.inputs[1]), mean_(request.inputs[2]), rstd_(request.inputs[3]),
          dx_(request.outputs[0]) {}

    void run(const Launch& l) const override {
        const T* scale = l.inputs.size() == 5 ? l.in<T>(4) : nullptr;
        parallel_for(x_.count(), x_.width(), [&](std::int64_t i) {
            simd().rows<T>().layer_norm_input_gradient(l.in<T>(0) + dy_[i], l.in<T>(1) + x_[i], scale, nullptr,
                                                       l.out<T>(0) + dx_[i], x_.width(), l.in<float>(2)[mean_[i]],
                                                       l.in<float>(3)[rstd_[i]]);
        });
    }

  private:
    Rows dy_, x_;
    Scalars mean_, rstd_;
    Rows dx_;
};

template <class T>
class RmsNorm : public Kernel {
  public:
    explicit RmsNorm(const KernelRequest& request)
        : x_(request.inputs[0]), y_(request.outputs[0]), eps_(static_cast<float>(request.attributes.real("eps"))),
          offset_(request.attributes.flag("unit_offset") ? 1.0f : 0.0f) {}

    void run(const Launch& l) const override {
        parallel_for(x_.count(), x_.width(), [&](std::int64_t i) {
            simd().rows<T>().rms_norm(l.in<T>(0) + x_[i], l.in<T>(1), l.out<T>(0) + y_[i], x_.width(), eps_, offset_,
                                      l.out<float>(1) + i);
        });
    }

  private:
    Rows x_, y_;
    float eps_, offset_;
};

template <class T>
class RmsNormInputGradient : public Kernel {
  public:
    explicit RmsNormInputGradient(const KernelRequest& request)
        : dy_(request.inputs[0]), x_(request.inputs[1]), rstd_(request.inputs[2]), dx_(request.outputs[0]),
          offset_(request.attributes.flag("unit_offset") ? 1.0f : 0.0f) {}

    void run(const Launch& l) const override {
        parallel_for(x_.count(), x_.width(), [&](std::int64_t i) {
            simd().rows<T>().rms_norm_input_gradient(l.in<T>(0) + dy_[i], l.in<T>(1) + x_[i], l.in<T>(3), nullptr,
                                                     l.out<T>(0) + dx_[i], x_.width(), l.in<float>(2)[rstd_[i]],
                                                     offset_);
        });
    }

  private:
    Rows dy_, x_;
    Scalars rstd_;
    Rows dx_;
    float offset_;
};

// ---- After an addition: the sum of a row is normalised while it is in the cache.

template <class T>
class AddedRows {
  public:
    explicit AddedRows(const KernelRequest& request)
        : a_(request.inputs[0]), b_(request.inputs[1]), sum_(request.outputs[0]),
          add_(simd().element(ElementOp::add, request.inputs[0].type.dtype)) {}

    std::int64_t count() const { return sum_.count(); }
    std::int64_t width() const { return sum_.width(); }
    // Adds row i and returns it.
    const T* add(const Launch& l, std::int64_t i) const {
        T* sum = l.out<T>(0) + sum_[i];
        const std::byte* in[] = {reinterpret_cast<const std::byte*>(l.in<T>(0) + a_[i]),
                                 reinterpret_cast<const std::byte*>(l.in<T>(1) + b_[i])};
        add_(in, reinterpret_cast<std::byte*>(sum), width());
        return sum;
    }

  private:
    Rows a_, b_, sum_;
    ElementFunction add_;
};

template <class T>
class AddLayerNorm : public Kernel {
  public:
    explicit AddLayerNorm(const KernelRequest& request)
        : sum_(request), y_(request.outputs[1]), eps_(static_cast<float>(request.attributes.real("eps"))) {}

    void run(const Launch& l) const override {
        parallel_for(sum_.count(), sum_.width(), [&](std::int64_t i) {
            simd().rows<T>().layer_norm(sum_.add(l, i), l.in<T>(2), l.in<T>(3), l.out<T>(1) + y_[i], sum_.width(), eps_,
                                        l.out<float>(2) + i, l.out<float>(3) + i);
        });
    }

  private:
    AddedRows<T> sum_;
    Rows y_;
    float eps_;
};

template <class T>
class AddRmsNorm : public Kernel {
  public:
    explicit AddRmsNorm(const KernelRequest& request)
        : sum_(request), y_(request.outputs[1]), eps_(static_cast<float>(request.attributes.real("eps"))),
          offset_(request.attributes.flag("unit_offset") ? 1.0f : 0.0f) {}

    void run(const Launch& l) const override {
        parallel_for(sum_.count(), sum_.width(), [&](std::int64_t i) {
            simd().rows<T>().rms_norm(sum_.add(l, i), l.in<T>(2), l.out<T>(1) + y_[i], sum_.width(), eps_, offset_,
                                      l.out<float>(2) + i);
        });
    }

  private:
    AddedRows<T> sum_;
    Rows y_;
    float eps_, offset_;
};

} // namespace

void add_norm_kernels(KernelTable& table) {
    add_floating<AddLayerNorm>(table, "add_layer_norm", 0);
    add_floating<AddRmsNorm>(table, "add_rms_norm", 0);
    add_floating<LayerNorm>(table, "layer_norm", 0);
    add_floating<LayerNormInputGradient>(table, "layer_norm_input_gradient", 1);
    add_floating<RmsNorm>(table, "rms_norm", 0);
    add_floating<RmsNormInputGradient>(table, "rms_norm_input_gradient", 1);
}

} // namespace tutti::backend::cpu

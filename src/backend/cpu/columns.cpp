// Sums over rows: gradients of biases and of the norms' scale and shift, alone or along with the rows' gradients.
//
// Rows are cut into blocks by their number alone, each block is summed on its own, and the blocks are added in order:
// the result depends neither on how many threads there are nor on which came first.
#include "backend/cpu/kernels.h"

#include <algorithm>

namespace tutti::backend::cpu {
namespace {

class ColumnSums : public Kernel {
  public:
    // Outputs from `first` on are sums.
    ColumnSums(const KernelRequest& request, Rows rows, std::size_t first = 0)
        : rows_(rows), width_(rows.width()), first_(first),
          sums_(static_cast<std::int64_t>(request.outputs.size() - first)), accumulate_(request.accumulate),
          is_narrow_(request.outputs.back().type.dtype == DType::bfloat16) {
        constexpr std::int64_t least = 32, most_blocks = 32;
        block_ = std::max(least, (rows.count() + most_blocks - 1) / most_blocks);
        blocks_ = (rows.count() + block_ - 1) / block_;
        for (const Operand& output : request.outputs)
            strides_.push_back(output.strides.empty() ? 1 : output.strides[0]);
    }

    Bytes workspace() const override { return {blocks_ * sums_ * width_ * static_cast<std::int64_t>(sizeof(float))}; }

    void run(const Launch& launch) const override {
        auto* partial = reinterpret_cast<float*>(launch.workspace);
        parallel_for(blocks_, block_ * width_, [&](std::int64_t b) {
            float* sums = partial + b * sums_ * width_;
            std::fill_n(sums, sums_ * width_, 0.0f);
            const std::int64_t end = std::min(rows_.count(), (b + 1) * block_);
            for (std::int64_t i = b * block_; i < end; ++i) add(launch, i, sums);
        });
        constexpr std::int64_t panel = 256;
        parallel_for((width_ + panel - 1) / panel, blocks_ * panel, [&](std::int64_t p) {
            const std::int64_t begin = p * panel, end = std::min(width_, begin + panel);
            for (std::int64_t s = 0; s < sums_; ++s) {
                float total[panel] = {};
                for (std::int64_t b = 0; b < blocks_; ++b)
                    for (std::int64_t j = begin; j < end; ++j)
                        total[j - begin] += partial[(b * sums_ + s) * width_ + j];
                const std::size_t output = first_ + static_cast<std::size_t>(s);
                if (is_narrow_)
                    put(total, launch.out<BFloat16>(output) + begin * strides_[output], strides_[output], end - begin);
                else
                    put(total, launch.out<float>(output) + begin * strides_[output], strides_[output], end - begin);
            }
        });
    }

  protected:
    // Row i's share, to [sums, width].
    virtual void add(const Launch& launch, std::int64_t i, float* sums) const = 0;

    Rows rows_;
    std::int64_t width_;

  private:
    template <class Out>
    void put(const float* total, Out* out, std::int64_t stride, std::int64_t count) const {
        for (std::int64_t j = 0; j < count; ++j)
            out[j * stride] = Out(total[j] + (accumulate_ ? static_cast<float>(out[j * stride]) : 0.0f));
    }

    std::size_t first_;
    std::int64_t sums_, block_ = 0, blocks_ = 0;
    bool accumulate_, is_narrow_; // the sums are stored in 16 bits
    std::vector<std::int64_t> strides_;
};

template <class T>
class BiasGradient : public ColumnSums {
  public:
    explicit BiasGradient(const KernelRequest& request) : ColumnSums(request, Rows(request.inputs[0])) {}

  private:
    void add(const Launch& l, std::int64_t i, float* sums) const override {
        simd().rows<T>().add_row(l.in<T>(0) + rows_[i], sums, width_);
    }
};

template <class T>
class LayerNormWeightGradient : public ColumnSums {
  public:
    explicit LayerNormWeightGradient(const KernelRequest& request)
        : ColumnSums(request, Rows(request.inputs[0])), x_(request.inputs[1]), mean_(request.inputs[2]),
          rstd_(request.inputs[3]) {}

  private:
    void add(const Launch& l, std::int64_t i, float* sums) const override {
        simd().rows<T>().add_layer_norm_row(l.in<T>(0) + rows_[i], l.in<T>(1) + x_[i], l.in<float>(2)[mean_[i]],
                                            l.in<float>(3)[rstd_[i]], sums, sums + width_, width_);
    }
    Rows x_;
    Scalars mean_, rstd_;
};

template <class T>
class RmsNormWeightGradient : public ColumnSums {
  public:
    explicit RmsNormWeightGradient(const KernelRequest& request)
        : ColumnSums(request, Rows(request.inputs[0])), x_(request.inputs[1]), rstd_(request.inputs[2]) {}

  private:
    void add(const Launch& l, std::int64_t i, float* sums) const override {
        simd().rows<T>().add_rms_norm_row(l.in<T>(0) + rows_[i], l.in<T>(1) + x_[i], l.in<float>(2)[rstd_[i]], sums,
                                          width_);
    }
    Rows x_;
    Scalars rstd_;
};

// Both gradients of a norm from one reading of dy and x.
template <class T>
class LayerNormGradient : public ColumnSums {
  public:
    explicit LayerNormGradient(const KernelRequest& request)
        : ColumnSums(request, Rows(request.inputs[0]), 1), x_(request.inputs[1]), mean_(request.inputs[2]),
          rstd_(request.inputs[3]), dx_(request.outputs[0]) {
        if (request.inputs.size() == 6) residual_ = Rows(request.inputs[5]);
    }

  private:
    void add(const Launch& l, std::int64_t i, float* sums) const override {
        const T *dy = l.in<T>(0) + rows_[i], *x = l.in<T>(1) + x_[i];
        const T* residual = l.inputs.size() == 6 ? l.in<T>(5) + residual_[i] : nullptr;
        const float mean = l.in<float>(2)[mean_[i]], rstd = l.in<float>(3)[rstd_[i]];
        simd().rows<T>().add_layer_norm_row(dy, x, mean, rstd, sums, sums + width_, width_);
        simd().rows<T>().layer_norm_input_gradient(dy, x, l.in<T>(4), residual, l.out<T>(0) + dx_[i], width_, mean,
                                                   rstd);
    }
    Rows x_;
    Scalars mean_, rstd_;
    Rows residual_, dx_;
};

template <class T>
class RmsNormGradient : public ColumnSums {
  public:
    explicit RmsNormGradient(const KernelRequest& request)
        : ColumnSums(request, Rows(request.inputs[0]), 1), x_(request.inputs[1]), rstd_(request.inputs[2]),
          dx_(request.outputs[0]), offset_(request.attributes.flag("unit_offset") ? 1.0f : 0.0f) {
        if (request.inputs.size() == 5) residual_ = Rows(request.inputs[4]);
    }

  private:
    void add(const Launch& l, std::int64_t i, float* sums) const override {
        const T *dy = l.in<T>(0) + rows_[i], *x = l.in<T>(1) + x_[i];
        const T* residual = l.inputs.size() == 5 ? l.in<T>(4) + residual_[i] : nullptr;
        const float rstd = l.in<float>(2)[rstd_[i]];
        simd().rows<T>().add_rms_norm_row(dy, x, rstd, sums, width_);
        simd().rows<T>().rms_norm_input_gradient(dy, x, l.in<T>(3), residual, l.out<T>(0) + dx_[i], width_, rstd,
                                                 offset_);
    }
    Rows x_;
    Scalars rstd_;
    Rows residual_, dx_;
    float offset_;
};

// dy given column by column: each sum is over neighbours.
template <class T, class Out>
class TransposedBiasGradient : public Kernel {
  public:
    explicit TransposedBiasGradient(const KernelRequest& request)
        : dy_(request.inputs[0]), width_(request.outputs[0].elements()), rows_(dy_.count() / width_),
          stride_(request.outputs[0].strides[0]), accumulate_(request.accumulate) {}

    void run(const Launch& l) const override {
        parallel_for(width_, rows_, [&](std::int64_t j) {
            double sum = 0;
            for (std::int64_t i = 0; i < rows_; ++i)
                sum += static_cast<double>(static_cast<float>(l.in<T>(0)[dy_[i * width_ + j]]));
            Out& out = l.out<Out>(0)[j * stride_];
            out = Out(static_cast<float>(sum) + (accumulate_ ? static_cast<float>(out) : 0.0f));
        });
    }

  private:
    Scalars dy_;
    std::int64_t width_, rows_, stride_;
    bool accumulate_;
};

} // namespace

void add_column_kernels(KernelTable& table) {
    table.add("bias_gradient", PrepareKernel([](const KernelRequest& request) {
                  const Operand& dy = request.inputs[0];
                  const bool by_rows = has_unit_rows(dy.type.shape, dy.strides);
                  return for_floating(request, dy.type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
                      if (by_rows) return std::make_unique<BiasGradient<T>>(request);
                      return for_floating(request, request.outputs[0].type.dtype,
                                          [&]<class Out>() -> std::unique_ptr<Kernel> {
                                              return std::make_unique<TransposedBiasGradient<T, Out>>(request);
                                          });
                  });
              }));
    add_floating<LayerNormWeightGradient>(table, "layer_norm_weight_gradient");
    add_floating<RmsNormWeightGradient>(table, "rms_norm_weight_gradient");
    add_floating<LayerNormGradient>(table, "layer_norm_gradient");
    add_floating<RmsNormGradient>(table, "rms_norm_gradient");
}

} // namespace tutti::backend::cpu

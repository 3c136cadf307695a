// Reductions over dimensions of a tensor of any strides, and cumulative sums. Sums are kept in double (integers in
// int64), each output by one thread from first to last.
#include "backend/cpu/kernels.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace tutti::backend::cpu {
namespace {

template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

template <class T>
Sum<T> widen(T x) {
    if constexpr (std::is_same_v<T, BFloat16>)
        return static_cast<double>(static_cast<float>(x));
    else
        return static_cast<Sum<T>>(x);
}
template <class T>
T narrow(Sum<T> x) {
    if constexpr (std::is_same_v<T, BFloat16>)
        return T(static_cast<float>(x));
    else
        return static_cast<T>(x);
}

template <class Make>
std::unique_ptr<Kernel> for_number(const KernelRequest& request, DType dtype, Make make) {
    switch (dtype) {
    case DType::float32: return make.template operator()<float>();
    case DType::bfloat16: return make.template operator()<BFloat16>();
    case DType::int64: return make.template operator()<std::int64_t>();
    case DType::int32: return make.template operator()<std::int32_t>();
    default: fail_unsupported(backend_name, request);
    }
}

enum class Reduce { sum, mean, max };

// The operand seen as [kept dimensions, reduced dimensions].
struct Axes {
    Operand kept, reduced;

    explicit Axes(const KernelRequest& request) {
        const Operand& x = request.inputs[0];
        const int rank = x.type.shape.rank();
        std::vector<bool> gone(static_cast<std::size_t>(rank), false);
        for (std::int64_t dim : request.attributes.integers("dims"))
            gone[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)] = true;
        for (int d = 0; d < rank; ++d) {
            Operand& side = gone[static_cast<std::size_t>(d)] ? reduced : kept;
            side.type.shape.push_back(x.type.shape[d]);
            side.strides.push_back(x.strides[d]);
        }
    }
};

template <class T>
class Reduction : public Kernel {
  public:
    Reduction(const KernelRequest& request, Reduce how) : Reduction(request, how, Axes(request)) {}

    // A panel of neighbouring outputs walks over the reduced elements together: where these neighbours are neighbours
    // in memory as well, every line that is fetched is used whole.
    void run(const Launch& l) const override {
        const T* x = l.in<T>(0);
        T* y = l.out<T>(0);
        parallel_for((kept_.count() + panel - 1) / panel, panel * reduced_.count(), [&](std::int64_t p) {
            const std::int64_t begin = p * panel, count = std::min(panel, kept_.count() - begin);
            std::int64_t at[panel];
            Sum<T> total[panel];
            for (std::int64_t i = 0; i < count; ++i) at[i] = kept_[begin + i];
            if (by_rows_) {
                for (std::int64_t i = 0; i < count; ++i) total[i] = reduce_row(x + at[i]);
            } else {
                std::fill_n(total, count, start());
                for (std::int64_t r = 0; r < reduced_.count(); ++r) {
                    const T* row = x + reduced_[r];
                    for (std::int64_t i = 0; i < count; ++i) total[i] = combine(total[i], widen(row[at[i]]));
                }
            }
            for (std::int64_t i = 0; i < count; ++i) y[out_[begin + i]] = narrow<T>(finish(total[i]));
        });
    }

  private:
    static constexpr std::int64_t panel = 64;

    Reduction(const KernelRequest& request, Reduce how, const Axes& axes)
        : kept_(axes.kept), reduced_(axes.reduced), rows_(axes.reduced), out_(request.outputs[0]), how_(how),
          by_rows_(!axes.reduced.type.shape.empty() && axes.reduced.strides.back() == 1) {}

    Sum<T> reduce_row(const T* x) const {
        Sum<T> total = start();
        for (std::int64_t r = 0; r < rows_.count(); ++r) {
            const T* row = x + rows_[r];
            if (how_ == Reduce::max) {
                for (std::int64_t i = 0; i < rows_.width(); ++i) total = std::max(total, widen(row[i]));
            } else {
                Sum<T> part[8] = {}; // independent chains of additions
                std::int64_t i = 0;
                for (; i + 8 <= rows_.width(); i += 8)
                    for (int c = 0; c < 8; ++c) part[c] += widen(row[i + c]);
                for (; i < rows_.width(); ++i) part[0] += widen(row[i]);
                for (Sum<T> value : part) total += value;
            }
        }
        return total;
    }

    Sum<T> start() const {
        if (how_ != Reduce::max) return 0;
        if constexpr (std::is_integral_v<T>)
            return std::numeric_limits<T>::min();
        else
            return -std::numeric_limits<double>::infinity();
    }
    Sum<T> combine(Sum<T> a, Sum<T> b) const { return how_ == Reduce::max ? std::max(a, b) : a + b; }
    Sum<T> finish(Sum<T> total) const {
        return how_ == Reduce::mean ? total / static_cast<Sum<T>>(reduced_.count()) : total;
    }

    Scalars kept_, reduced_;
    Rows rows_;
    Scalars out_;
    Reduce how_;
    bool by_rows_;
};

template <class T>
class CumulativeSum : public Kernel {
  public:
    explicit CumulativeSum(const KernelRequest& request)
        : x_(lines_of(request.inputs[0], dim_of(request, request.inputs[0].type.shape.rank()))),
          y_(lines_of(request.outputs[0], dim_of(request, request.inputs[0].type.shape.rank()))) {
        const int dim = dim_of(request, request.inputs[0].type.shape.rank());
        size_ = request.inputs[0].type.shape[dim];
        x_step_ = request.inputs[0].strides[dim];
        y_step_ = request.outputs[0].strides[dim];
        reverse_ = request.attributes.flag("reverse");
    }

    void run(const Launch& l) const override {
        parallel_for(x_.count(), size_, [&](std::int64_t line) {
            const T* x = l.in<T>(0) + x_[line];
            T* y = l.out<T>(0) + y_[line];
            Sum<T> total = 0;
            for (std::int64_t n = 0; n < size_; ++n) {
                const std::int64_t i = reverse_ ? size_ - 1 - n : n;
                total += widen(x[i * x_step_]);
                y[i * y_step_] = narrow<T>(total);
            }
        });
    }

  private:
    static Operand lines_of(Operand operand, int dim) {
        operand.type.shape.erase(dim);
        operand.strides.erase(dim);
        return operand;
    }
    Scalars x_, y_;
    std::int64_t size_ = 0, x_step_ = 0, y_step_ = 0;
    bool reverse_ = false;
};

} // namespace

void add_reduction_kernels(KernelTable& table) {
    auto add = [&](const char* name, Reduce how) {
        table.add(name, PrepareKernel([how](const KernelRequest& request) {
                      return for_number(request, request.inputs[0].type.dtype,
                                        [&]<class T>() -> std::unique_ptr<Kernel> {
                                            return std::make_unique<Reduction<T>>(request, how);
                                        });
                  }));
    };
    add("reduce_sum", Reduce::sum);
    add("reduce_mean", Reduce::mean);
    add("reduce_max", Reduce::max);
    table.add("cumsum", PrepareKernel([](const KernelRequest& request) {
                  return for_number(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
                      return std::make_unique<CumulativeSum<T>>(request);
                  });
              }));
}

} // namespace tutti::backend::cpu

// Softmax and cross-entropy over rows.
#include "backend/cpu/kernels.h"

#include <algorithm>
#include <cmath>

namespace tutti::backend::cpu {
namespace {

template <class T>
class Softmax : public Kernel {
  public:
    explicit Softmax(const KernelRequest& request) : x_(request.inputs[0]), y_(request.outputs[0]) {}
    void run(const Launch& l) const override {
        parallel_for(x_.count(), 8 * x_.width(), [&](std::int64_t i) {
            simd().rows<T>().softmax(l.in<T>(0) + x_[i], l.out<T>(0) + y_[i], x_.width());
        });
    }

  private:
    Rows x_, y_;
};

template <class T>
class SoftmaxGradient : public Kernel {
  public:
    explicit SoftmaxGradient(const KernelRequest& request)
        : dy_(request.inputs[0]), y_(request.inputs[1]), dx_(request.outputs[0]) {}
    void run(const Launch& l) const override {
        parallel_for(y_.count(), y_.width(), [&](std::int64_t i) {
            simd().rows<T>().softmax_gradient(l.in<T>(0) + dy_[i], l.in<T>(1) + y_[i], l.out<T>(0) + dx_[i],
                                              y_.width());
        });
    }

  private:
    Rows dy_, y_, dx_;
};

// Rows of logits, of all classes or of those from `first` on.
struct Targets {
    std::int64_t rows, classes, ignored, first, all;

    Targets(const KernelRequest& request, const Operand& logits)
        : rows(logits.elements() / logits.type.shape.back()), classes(logits.type.shape.back()),
          ignored(request.attributes.integer("ignore_index", -100)),
          first(request.attributes.integer("first_class", 0)), all(request.attributes.integer("classes", classes)) {}

    // Checked before the rows are shared out: nothing may be thrown out of a parallel loop.
    void check(const std::int64_t* targets) const {
        for (std::int64_t i = 0; i < rows; ++i)
            TUTTI_CHECK(targets[i] == ignored || (targets[i] >= 0 && targets[i] < all), "target {} of {} classes",
                        targets[i], all);
    }
    // The target's place among these classes; -1 where it is none of them.
    std::int64_t place(std::int64_t target) const {
        return target >= first && target < first + classes ? target - first : -1;
    }
};

// loss = sum over the rows that count of lse - logit[target]
template <class T>
class CrossEntropy : public Kernel {
  public:
    explicit CrossEntropy(const KernelRequest& request) : targets_(request, request.inputs[0]) {}

    void run(const Launch& l) const override {
        const T* logits = l.in<T>(0);
        const auto* targets = l.in<std::int64_t>(1);
        float* lse = l.out<float>(1);
        const std::int64_t classes = targets_.classes;
        targets_.check(targets);
        parallel_for(targets_.rows, 8 * classes,
                     [&](std::int64_t i) { lse[i] = simd().rows<T>().log_sum_exp(logits + i * classes, classes); });
        double loss = 0;
        for (std::int64_t i = 0; i < targets_.rows; ++i)
            if (targets[i] != targets_.ignored)
                loss += static_cast<double>(lse[i] - static_cast<float>(logits[i * classes + targets[i]]));
        *l.out<float>(0) = static_cast<float>(loss);
    }

  private:
    Targets targets_;
};

template <class T>
class CrossEntropyGradient : public Kernel {
  public:
    explicit CrossEntropyGradient(const KernelRequest& request)
        : targets_(request, request.inputs[1]), narrow_seed_(request.inputs[0].type.dtype == DType::bfloat16) {}

    void run(const Launch& l) const override {
        const float seed = narrow_seed_ ? static_cast<float>(*l.in<BFloat16>(0)) : *l.in<float>(0);
        const auto* targets = l.in<std::int64_t>(2);
        const std::int64_t classes = targets_.classes;
        targets_.check(targets);
        parallel_for(targets_.rows, 8 * classes, [&](std::int64_t i) {
            const T* x = l.in<T>(1) + i * classes;
            T* dx = l.out<T>(0) + i * classes;
            if (targets[i] == targets_.ignored)
                std::fill_n(dx, classes, T{});
            else
                simd().rows<T>().cross_entropy_gradient(x, dx, classes, targets_.place(targets[i]), l.in<float>(3)[i],
                                                        seed);
        });
    }

  private:
    Targets targets_;
    bool narrow_seed_;
};

// Of every row the log of the sum of exponentials, and the target's logit where it is one of these classes.
template <class T>
class CrossEntropyPart : public Kernel {
  public:
    explicit CrossEntropyPart(const KernelRequest& request) : targets_(request, request.inputs[0]) {}

    void run(const Launch& l) const override {
        const auto* targets = l.in<std::int64_t>(1);
        const std::int64_t classes = targets_.classes;
        targets_.check(targets);
        parallel_for(targets_.rows, 8 * classes, [&](std::int64_t i) {
            const T* x = l.in<T>(0) + i * classes;
            float* statistics = l.out<float>(0) + 2 * i;
            const std::int64_t place = targets[i] == targets_.ignored ? -1 : targets_.place(targets[i]);
            statistics[0] = simd().rows<T>().log_sum_exp(x, classes);
            statistics[1] = place < 0 ? 0 : static_cast<float>(x[place]);
        });
    }

  private:
    Targets targets_;
};

// The loss from the statistics of all parts.
class CrossEntropyJoin : public Kernel {
  public:
    explicit CrossEntropyJoin(const KernelRequest& request)
        : parts_(request.inputs[0].type.shape[0]), rows_(request.inputs[1].elements()),
          ignored_(request.attributes.integer("ignore_index", -100)) {}

    void run(const Launch& l) const override {
        const auto* targets = l.in<std::int64_t>(1);
        double loss = 0;
        for (std::int64_t i = 0; i < rows_; ++i) {
            auto statistic = [&](std::int64_t part, int which) {
                return static_cast<double>(l.in<float>(0)[2 * (part * rows_ + i) + which]);
            };
            double most = statistic(0, 0), sum = 0, logit = 0;
            for (std::int64_t p = 1; p < parts_; ++p) most = std::max(most, statistic(p, 0));
            for (std::int64_t p = 0; p < parts_; ++p) {
                sum += std::exp(statistic(p, 0) - most);
                logit += statistic(p, 1);
            }
            const double lse = most + std::log(sum);
            l.out<float>(1)[i] = static_cast<float>(lse);
            if (targets[i] != ignored_) loss += lse - logit;
        }
        *l.out<float>(0) = static_cast<float>(loss);
    }

  private:
    std::int64_t parts_, rows_, ignored_;
};

} // namespace

void add_loss_kernels(KernelTable& table) {
    add_floating<Softmax>(table, "softmax", 0);
    add_floating<SoftmaxGradient>(table, "softmax_gradient", 0);
    add_floating<CrossEntropy>(table, "cross_entropy", 0);
    add_floating<CrossEntropyGradient>(table, "cross_entropy_gradient", 1);
    add_floating<CrossEntropyPart>(table, "cross_entropy_part", 0);
    table.add("cross_entropy_join", PrepareKernel([](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                  return std::make_unique<CrossEntropyJoin>(request);
              }));
}

} // namespace tutti::backend::cpu

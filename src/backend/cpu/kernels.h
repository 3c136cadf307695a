// Shared by the kernel files of this folder: the lists of kernel families, the choice of the element type, and parallel
// loops.
#pragma once

#include "backend/cpu/simd/simd.h"
#include "backend/kernel_table.h"
#include "base/error.h"

#include <cstdint>
#include <memory>

namespace tutti::backend::cpu {

class Onednn; // onednn.h

void add_element_kernels(KernelTable&);   // unary, binary, where, cast, accumulate, gated
void add_random_kernels(KernelTable&);    // dropout
void add_copy_kernels(KernelTable&);      // contiguous, concat, slice_gradient
void add_norm_kernels(KernelTable&);      // layer_norm, rms_norm, their input gradients, both after an addition
void add_column_kernels(KernelTable&);    // bias_gradient, norm gradients: sums over rows
void add_loss_kernels(KernelTable&);      // softmax, cross_entropy whole and by parts, their gradients
void add_reduction_kernels(KernelTable&); // reduce_sum, reduce_mean, reduce_max, cumsum
void add_index_kernels(KernelTable&);     // embedding, gather
void add_source_kernels(KernelTable&);    // fill, iota, rotary_table, step_scalar
void add_step_kernels(KernelTable&);      // squared_norm, finish_norm, adamw
void add_attention_kernels(KernelTable&); // attention, its gradient, rotary
void add_head_kernels(KernelTable&);      // linear_cross_entropy_gradient
void add_matrix_kernels(KernelTable&, std::shared_ptr<Onednn>);

constexpr const char* backend_name = "cpu";

// Calls make.template operator()<T>() with the C++ type of a float32 or bf16 operand.
template <class Make>
auto for_floating(const KernelRequest& request, DType dtype, Make make) {
    if (dtype == DType::float32) return make.template operator()<float>();
    if (dtype == DType::bfloat16) return make.template operator()<BFloat16>();
    fail_unsupported(backend_name, request);
}

// Adds a kernel class for float32 and bf16, chosen by the type of input `data`.
template <template <class> class KernelOf>
void add_floating(KernelTable& table, const char* name, std::size_t data = 0) {
    table.add(name, PrepareKernel([data](const KernelRequest& request) {
                  return for_floating(
                      request, request.inputs[data].type.dtype,
                      [&]<class T>() -> std::unique_ptr<Kernel> { return std::make_unique<KernelOf<T>>(request); });
              }));
}

// body(i) for i in [0, count), split evenly among the threads; on this one alone where the work (in elements touched)
// is not worth waking the others.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t work_of_each, Body body) {
    constexpr std::int64_t worth = 1 << 14;
#pragma omp parallel for schedule(static) if (count > 1 && count * work_of_each > worth)
    for (std::int64_t i = 0; i < count; ++i) body(i);
}

// The elements of a tensor of any strides, by their number in row-major order.
class Scalars {
  public:
    Scalars() = default;
    explicit Scalars(const Operand& operand)
        : Scalars(operand.type.shape, operand.strides, operand.type.shape.rank()) {}

    std::int64_t count() const { return count_; }
    // Where element i lies.
    std::int64_t operator[](std::int64_t i) const {
        std::int64_t at = 0;
        for (int d = sizes_.rank() - 1; d > 0; --d) {
            at += i % sizes_[d] * strides_[d];
            i /= sizes_[d];
        }
        return sizes_.empty() ? at : at + i * strides_[0];
    }

  protected:
    // Of the first `rank` dimensions; neighbours are joined where that is possible.
    Scalars(const Shape& shape, const Shape& strides, int rank) {
        for (int d = 0; d < rank; ++d) {
            count_ *= shape[d];
            if (shape[d] == 1) continue;
            const int last = sizes_.rank() - 1;
            if (last >= 0 && strides_[last] == strides[d] * shape[d]) {
                sizes_[last] *= shape[d];
                strides_[last] = strides[d];
            } else {
                sizes_.push_back(shape[d]);
                strides_.push_back(strides[d]);
            }
        }
    }

  private:
    std::int64_t count_ = 1;
    Shape sizes_, strides_;
};

// The same of a tensor's rows: all dimensions but the last, which is contiguous.
class Rows : public Scalars {
  public:
    Rows() = default;
    explicit Rows(const Operand& operand)
        : Scalars(operand.type.shape, operand.strides, operand.type.shape.rank() - 1),
          width_(operand.type.shape.empty() ? 1 : operand.type.shape.back()) {}
    std::int64_t width() const { return width_; }

  private:
    std::int64_t width_ = 0;
};

inline int dim_of(const KernelRequest& request, int rank) {
    const std::int64_t dim = request.attributes.integer("dim");
    return static_cast<int>(dim < 0 ? dim + rank : dim);
}

} // namespace tutti::backend::cpu

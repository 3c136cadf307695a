// Matrix products. Operands are given as they lie in memory, transposed or not: packing them first costs as much as it
// gains (all three matmuls at GPT-2's shapes, within 5% of the best), but for one case below.
#include "backend/cpu/kernels.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/walk.h"

#include <algorithm>

namespace tutti::backend::cpu {
namespace {

// Strides of dimensions of one element mean nothing, but libraries look at them.
Matrix tidy(Matrix m) {
    if (m.columns == 1 && m.rows == 1) return {m.dtype, 1, 1, 1, 1};
    if (m.columns == 1 && m.row_stride != 1) m.column_stride = 1;
    if (m.columns == 1 && m.row_stride == 1) m.column_stride = m.rows;
    if (m.rows == 1) m.row_stride = m.column_stride == 1 ? m.columns : 1;
    return m;
}

// All dimensions but the last as rows; the operand collapses to a matrix (Accepts::matrix).
Matrix matrix_of(const Operand& operand) {
    const Shape& shape = operand.type.shape;
    Matrix m{operand.type.dtype, 1, shape.back(), 0, operand.strides.back()};
    for (int d = shape.rank() - 2; d >= 0; --d) {
        if (shape[d] != 1 && m.rows == 1) m.row_stride = operand.strides[d];
        m.rows *= shape[d];
    }
    return tidy(m);
}

// The last two dimensions.
Matrix last_two(const Operand& operand, bool transpose) {
    const int rank = operand.type.shape.rank();
    const Matrix m{operand.type.dtype, operand.type.shape[rank - 2], operand.type.shape[rank - 1],
                   operand.strides[rank - 2], operand.strides[rank - 1]};
    return tidy(transpose ? m.transposed() : m);
}

bool fits_onednn(const Matrix& m) {
    return (m.column_stride == 1 && m.row_stride >= m.columns) || (m.row_stride == 1 && m.column_stride >= m.rows);
}

// y [r,n] = x [r,k] weight' [k,n] + bias
std::unique_ptr<Kernel> linear(const std::shared_ptr<Onednn>& onednn, const KernelRequest& request) {
    return make_matmul(onednn, {.left = matrix_of(request.inputs[0]),
                                .right = matrix_of(request.inputs[1]).transposed(),
                                .out = matrix_of(request.outputs[0]),
                                .has_bias = request.inputs.size() == 3});
}

// A product that is added to input 2, which is copied to where the result will be unless it lies there already.
class AddedMatmul : public Kernel {
  public:
    AddedMatmul(const KernelRequest& request, std::unique_ptr<Kernel> matmul)
        : walk_(request.outputs[0], std::span(&request.inputs[2], 1)), matmul_(std::move(matmul)),
          element_(size_of(request.outputs[0].type.dtype)) {}

    Bytes workspace() const override { return matmul_->workspace(); }
    void run(const Launch& launch) const override {
        if (launch.inputs[2] != launch.outputs[0])
            parallel_for(walk_.pieces(), Walk::piece, [&](std::int64_t index) {
                std::byte* to = launch.outputs[0] + walk_.begin(index) * element_; // dense
                const std::byte* from = walk_.read(0, launch.inputs[2], index, to);
                if (from != to) std::copy_n(from, walk_.count(index) * element_, to);
            });
        matmul_->run(launch);
    }

  private:
    Walk walk_;
    std::unique_ptr<Kernel> matmul_;
    std::int64_t element_;
};

// dx [r,k] = dy [r,n] weight [n,k] (+ addend)
std::unique_ptr<Kernel> linear_input_gradient(const std::shared_ptr<Onednn>& onednn, const KernelRequest& request) {
    const bool adds = request.inputs.size() == 3;
    auto matmul = make_matmul(onednn, {.left = matrix_of(request.inputs[0]),
                                       .right = matrix_of(request.inputs[1]),
                                       .out = matrix_of(request.outputs[0]),
                                       .accumulate = adds});
    if (!adds) return matmul;
    return std::make_unique<AddedMatmul>(request, std::move(matmul));
}

// dweight [n,k] = dy' [n,r] x [r,k]; where the weight is stored by columns, its transpose: [k,n] = x' dy
std::unique_ptr<Kernel> linear_weight_gradient(const std::shared_ptr<Onednn>& onednn, const KernelRequest& request) {
    const Matrix dy = matrix_of(request.inputs[0]), x = matrix_of(request.inputs[1]);
    const Matrix dweight = matrix_of(request.outputs[0]);
    Matmul matmul;
    matmul.accumulate = request.accumulate;
    if (dweight.by_rows()) {
        matmul.left = dy.transposed(), matmul.right = x, matmul.out = dweight;
    } else {
        matmul.left = x.transposed(), matmul.right = dy, matmul.out = dweight.transposed();
        matmul.left_input = 1, matmul.right_input = 0;
    }
    // The head's: 50257 rows go over the same small x again and again (bf16: 400 GFLOP/s packed, 320 not).
    matmul.pack_right = dy.dtype == DType::bfloat16 && matmul.out.rows >= 16384;
    return make_matmul(onednn, matmul);
}

// All batch dimensions joined where their strides allow it, else the last alone and the others one by one.
struct Batches {
    Batch inner;
    std::vector<Batch> outer;

    explicit Batches(const KernelRequest& request) {
        const Operand &a = request.inputs[0], &b = request.inputs[1], &y = request.outputs[0];
        const int rank = y.type.shape.rank();
        std::vector<Batch> dims;
        for (int d = 0; d + 2 < rank; ++d) {
            const Batch dim{y.type.shape[d], a.strides[d], b.strides[d], y.strides[d]};
            if (dim.count == 1) continue;
            if (!dims.empty() && dims.back().left == dim.left * dim.count &&
                dims.back().right == dim.right * dim.count && dims.back().out == dim.out * dim.count)
                dims.back() = {dims.back().count * dim.count, dim.left, dim.right, dim.out};
            else
                dims.push_back(dim);
        }
        auto regular = [](std::int64_t stride, const Matrix& m) { return stride >= m.rows * m.columns; };
        const bool last_fits = !dims.empty() && regular(dims.back().left, last_two(a, false)) &&
                               regular(dims.back().right, last_two(b, false)) &&
                               regular(dims.back().out, last_two(y, false));
        if (last_fits) {
            inner = dims.back();
            dims.pop_back();
        }
        if (dims.empty()) return;
        outer.push_back({});
        for (const Batch& dim : dims) {
            std::vector<Batch> next;
            for (const Batch& at : outer)
                for (std::int64_t i = 0; i < dim.count; ++i)
                    next.push_back({1, at.left + i * dim.left, at.right + i * dim.right, at.out + i * dim.out});
            outer = std::move(next);
        }
    }
};

// Operands that no library takes (rows repeated by expand, say): plain loops.
template <class T>
class PlainMatmul : public Kernel {
  public:
    explicit PlainMatmul(const KernelRequest& request)
        : a_(last_two(request.inputs[0], request.attributes.flag("transpose_a"))),
          b_(last_two(request.inputs[1], request.attributes.flag("transpose_b"))),
          y_(last_two(request.outputs[0], false)), batch_a_(batch_of(request.inputs[0])),
          batch_b_(batch_of(request.inputs[1])), batch_y_(batch_of(request.outputs[0])) {}

    void run(const Launch& l) const override {
        parallel_for(batch_y_.count() * y_.rows, y_.columns * a_.columns, [&](std::int64_t row) {
            const std::int64_t batch = row / y_.rows, i = row % y_.rows;
            const T* a = l.in<T>(0) + batch_a_[batch] + i * a_.row_stride;
            for (std::int64_t j = 0; j < y_.columns; ++j) {
                const T* b = l.in<T>(1) + batch_b_[batch] + j * b_.column_stride;
                double sum = 0;
                for (std::int64_t k = 0; k < a_.columns; ++k)
                    sum += static_cast<double>(static_cast<float>(a[k * a_.column_stride])) *
                           static_cast<double>(static_cast<float>(b[k * b_.row_stride]));
                l.out<T>(0)[batch_y_[batch] + i * y_.row_stride + j * y_.column_stride] = T(static_cast<float>(sum));
            }
        });
    }

  private:
    static Operand batch_of(Operand operand) {
        for (int last = 0; last < 2; ++last) {
            operand.type.shape.erase(operand.type.shape.rank() - 1);
            operand.strides.erase(operand.strides.rank() - 1);
        }
        return operand;
    }
    Matrix a_, b_, y_;
    Scalars batch_a_, batch_b_, batch_y_;
};

std::unique_ptr<Kernel> matmul(const std::shared_ptr<Onednn>& onednn, const KernelRequest& request) {
    const Matrix a = last_two(request.inputs[0], request.attributes.flag("transpose_a"));
    const Matrix b = last_two(request.inputs[1], request.attributes.flag("transpose_b"));
    const Matrix y = last_two(request.outputs[0], false);
    if (!fits_onednn(a) || !fits_onednn(b) || !fits_onednn(y))
        return for_floating(request, a.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
            return std::make_unique<PlainMatmul<T>>(request);
        });
    const Batches batches(request);
    return make_matmul(onednn, {.left = a, .right = b, .out = y, .batch = batches.inner, .outer = batches.outer});
}

void check_types(const KernelRequest& request) {
    for (const Operand& operand : request.inputs)
        if (operand.type.dtype != DType::float32 && operand.type.dtype != DType::bfloat16)
            fail_unsupported(backend_name, request);
}

} // namespace

void add_matrix_kernels(KernelTable& table, std::shared_ptr<Onednn> onednn) {
    using Make = std::unique_ptr<Kernel> (*)(const std::shared_ptr<Onednn>&, const KernelRequest&);
    auto add = [&](const char* name, Make make) {
        table.add(name, PrepareKernel([make, onednn](const KernelRequest& request) {
                      check_types(request);
                      try {
                          return make(onednn, request);
                      } catch (const dnnl::error& error) {
                          fail("oneDNN has no matmul for {}: {}", describe(request), error.message);
                      }
                  }));
    };
    add("linear", linear);
    add("linear_input_gradient", linear_input_gradient);
    add("linear_weight_gradient", linear_weight_gradient);
    add("matmul", matmul);
}

} // namespace tutti::backend::cpu

// Matrix products, by oneDNN. Operands are given as they lie in memory, transposed or not: packing them first costs as
// much as it gains (bench of all three products at GPT-2's shapes, within 5% of the best everywhere).
#include "backend/cpu/matrix.h"

#include "backend/cpu/kernels.h"

#include <algorithm>
#include <mutex>
#include <optional>

namespace tutti::cpu {
namespace {

using dnnl::memory;

// A matrix as it lies in memory. Strides are in elements.
struct Matrix {
    DType dtype = DType::float32;
    std::int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 0;

    Matrix transposed() const { return {dtype, columns, rows, column_stride, row_stride}; }
    bool by_rows() const { return column_stride == 1; }
};

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

memory::data_type type_of(DType dtype) {
    return dtype == DType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// How many products of the same shape, and how far apart their operands lie.
struct Batch {
    std::int64_t count = 1, left = 0, right = 0, out = 0;
};

// out = left right (+ bias) (+ out)
class Product : public Kernel {
  public:
    struct Places {
        std::size_t left, right, bias; // inputs; bias beyond the last input: none
    };

    Product(std::shared_ptr<Onednn> onednn, const Matrix& left, const Matrix& right, const Matrix& out, Places places,
            bool has_bias, bool accumulate, Batch batch = {}, std::vector<Batch> outer = {})
        : onednn_(std::move(onednn)), places_(places),
          outer_(std::move(outer)), element_sizes_{size_of(left.dtype), size_of(right.dtype), size_of(out.dtype)} {
        const memory::desc left_desc = describe(left, batch.count, batch.left);
        const memory::desc right_desc = describe(right, batch.count, batch.right);
        const memory::desc out_desc = describe(out, batch.count, batch.out);
        memory::desc bias_desc;
        if (has_bias) {
            const Matrix bias{left.dtype, 1, out.columns, out.columns, 1};
            bias_desc = describe(bias, 1, out.columns, batch.count > 1);
        }
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (accumulate) {
            dnnl::post_ops add;
            add.append_sum(1.0f);
            attributes.set_post_ops(add);
        }
        const dnnl::matmul::desc what = has_bias ? dnnl::matmul::desc(left_desc, right_desc, bias_desc, out_desc)
                                                 : dnnl::matmul::desc(left_desc, right_desc, out_desc);
        const dnnl::matmul::primitive_desc how(what, attributes, onednn_->engine);
        primitive_ = dnnl::matmul(how);
        scratchpad_ = {static_cast<std::int64_t>(how.scratchpad_desc().get_size())};

        auto hold = [&](int name, const memory::desc& desc) {
            memories_.emplace_back(desc, onednn_->engine, nullptr);
            arguments_.push_back({name, memories_.back().get()});
        };
        memories_.reserve(5);
        hold(DNNL_ARG_SRC, left_desc);
        hold(DNNL_ARG_WEIGHTS, right_desc);
        hold(DNNL_ARG_DST, out_desc);
        hold(DNNL_ARG_SCRATCHPAD, how.scratchpad_desc());
        if (has_bias) hold(DNNL_ARG_BIAS, bias_desc);
    }

    Bytes workspace() const override { return scratchpad_; }

    void run(const Launch& launch) const override {
        if (outer_.empty()) return run_at(launch, {});
        for (const Batch& at : outer_) run_at(launch, at);
    }

  private:
    static memory::desc describe(const Matrix& m, std::int64_t count, std::int64_t stride, bool batched = false) {
        if (count == 1 && !batched)
            return {{m.rows, m.columns}, type_of(m.dtype), memory::dims{m.row_stride, m.column_stride}};
        return {{count, m.rows, m.columns}, type_of(m.dtype), memory::dims{stride, m.row_stride, m.column_stride}};
    }

    // Kernels of a device run one at a time, so the memory objects, made once, are just pointed at the operands.
    void run_at(const Launch& launch, const Batch& at) const {
        auto point = [&](std::size_t i, const std::byte* data) {
            dnnl_memory_set_data_handle_v2(memories_[i].get(), const_cast<std::byte*>(data), onednn_->stream.get());
        };
        point(0, launch.inputs[places_.left] + at.left * element_sizes_[0]);
        point(1, launch.inputs[places_.right] + at.right * element_sizes_[1]);
        point(2, launch.outputs[0] + at.out * element_sizes_[2]);
        point(3, launch.workspace);
        if (memories_.size() == 5) point(4, launch.inputs[places_.bias]);
        const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), onednn_->stream.get(),
                                                            static_cast<int>(arguments_.size()), arguments_.data());
        TUTTI_CHECK(status == dnnl_success, "oneDNN status {}", static_cast<int>(status));
    }

    std::shared_ptr<Onednn> onednn_;
    Places places_;
    std::vector<Batch> outer_; // where to run again: batch dimensions that did not join
    std::int64_t element_sizes_[3];
    dnnl::matmul primitive_;
    Bytes scratchpad_;
    std::vector<memory> memories_;
    std::vector<dnnl_exec_arg_t> arguments_;
};

// ---- The operators

// y [r,n] = x [r,k] weight' [k,n] + bias
std::unique_ptr<Kernel> linear(const std::shared_ptr<Onednn>& onednn, const KernelRequest& request) {
    return std::make_unique<Product>(onednn, matrix_of(request.inputs[0]), matrix_of(request.inputs[1]).transposed(),
                                     matrix_of(request.outputs[0]), Product::Places{0, 1, 2},
                                     request.inputs.size() == 3, false);
}

// dx [r,k] = dy [r,n] weight [n,k]
std::unique_ptr<Kernel> linear_input_gradient(const std::shared_ptr<Onednn>& onednn, const KernelRequest& request) {
    return std::make_unique<Product>(onednn, matrix_of(request.inputs[0]), matrix_of(request.inputs[1]),
                                     matrix_of(request.outputs[0]), Product::Places{0, 1, 2}, false, false);
}

// dweight [n,k] = dy' [n,r] x [r,k]; where the weight is stored by columns, its transpose: [k,n] = x' dy
std::unique_ptr<Kernel> linear_weight_gradient(const std::shared_ptr<Onednn>& onednn, const KernelRequest& request) {
    const Matrix dy = matrix_of(request.inputs[0]), x = matrix_of(request.inputs[1]);
    const Matrix dweight = matrix_of(request.outputs[0]);
    if (dweight.by_rows())
        return std::make_unique<Product>(onednn, dy.transposed(), x, dweight, Product::Places{0, 1, 2}, false,
                                         request.accumulate);
    return std::make_unique<Product>(onednn, x.transposed(), dy, dweight.transposed(), Product::Places{1, 0, 2}, false,
                                     request.accumulate);
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
    Batches batches(request);
    return std::make_unique<Product>(onednn, a, b, y, Product::Places{0, 1, 2}, false, false, batches.inner,
                                     std::move(batches.outer));
}

void check_types(const KernelRequest& request) {
    for (const Operand& operand : request.inputs)
        if (operand.type.dtype != DType::float32 && operand.type.dtype != DType::bfloat16)
            fail_unsupported(backend_name, request);
}

} // namespace

Onednn::Onednn() {
    // Debian's oneDNN 2.6.3 dies in its AMX code on some CPUs. It may be told only once, before its first use.
    static std::once_flag told;
    std::call_once(told, [] { dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16); });
    engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream = dnnl::stream(engine);
}

void add_matrix_kernels(KernelTable& table, std::shared_ptr<Onednn> onednn) {
    using Make = std::unique_ptr<Kernel> (*)(const std::shared_ptr<Onednn>&, const KernelRequest&);
    auto add = [&](const char* name, Make make) {
        table.add(name, PrepareKernel([make, onednn](const KernelRequest& request) {
                      check_types(request);
                      try {
                          return make(onednn, request);
                      } catch (const dnnl::error& error) {
                          fail("oneDNN has no product for {}: {}", describe(request), error.message);
                      }
                  }));
    };
    add("linear", linear);
    add("linear_input_gradient", linear_input_gradient);
    add("linear_weight_gradient", linear_weight_gradient);
    add("matmul", matmul);
}

} // namespace tutti::cpu

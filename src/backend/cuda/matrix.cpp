// Matrix products. Operands are given to cuBLASLt as they lie in memory, transposed or not, and gradients of weights
// are written, or added, straight into the parameter's own layout.
#include "backend/cuda/matrix_kernels.h"
#include "base/error.h"

#include <algorithm>

namespace tutti::backend::cuda {
namespace {

// Which inputs of a kernel the operands of its product are; out is output 0.
struct Places {
    std::size_t left = 0, right = 1;
    std::optional<std::size_t> bias = {}, addend = {};
    bool add_to_out = false;
};

class MatmulKernel : public Kernel {
  public:
    // `outer`: one matmul for each of these, at its offsets.
    MatmulKernel(Cublas& cublas, const Matmul& matmul, const Places& places, std::vector<Batch> outer = {{}})
        : prepared_(cublas.prepare(matmul)), matmul_(matmul), places_(places), outer_(std::move(outer)) {}

    Bytes workspace() const override { return Cublas::workspace; }

    void run(const Launch& launch) const override {
        for (const Batch& at : outer_) {
            std::byte* const out = launch.outputs[0] + at.out * size_of(matmul_.out.dtype);
            const MatmulPointers pointers{.left = launch.inputs[places_.left] + at.left * size_of(matmul_.left.dtype),
                                          .right =
                                              launch.inputs[places_.right] + at.right * size_of(matmul_.right.dtype),
                                          .bias = places_.bias ? launch.inputs[*places_.bias] : nullptr,
                                          .addend = places_.add_to_out ? out
                                                    : places_.addend   ? launch.inputs[*places_.addend]
                                                                       : nullptr,
                                          .out = out};
            prepared_->run(stream_of(launch), pointers, launch.workspace);
        }
    }

  private:
    std::shared_ptr<const PreparedMatmul> prepared_;
    Matmul matmul_;
    Places places_;
    std::vector<Batch> outer_;
};

// A large linear whose number of outputs cuBLASLt has no fast kernels for, as that of an output head on its own: with a
// padded copy of the weight into padded rows, some of them at a time, which are then copied to where they belong.
// Workspace: cuBLASLt's | weight | bias | some rows of outputs
class PaddedLinear : public Kernel {
  public:
    static bool is_worth_it(const Matmul& p) {
        return p.out.dtype == DType::bfloat16 && p.out.rows >= 256 && p.out.columns >= 1024 && p.out.columns % 8 != 0 &&
               p.out.column_stride == 1 && p.right.row_stride == 1;
    }

    PaddedLinear(Cublas& cublas, const Matmul& matmul)
        : x_(matmul.left), weight_(matmul.right.transposed()), y_(matmul.out), has_bias_(matmul.has_bias),
          padded_(padded_extent(y_.columns)),
          rows_at_once_(std::min(
              y_.rows, std::clamp(most_bytes / (padded_ * size_of(y_.dtype)), std::int64_t{128}, std::int64_t{4096}))),
          bias_at_(weight_at + round_up(padded_ * weight_.columns * size_of(y_.dtype), 256)),
          rows_at_(bias_at_ + round_up(padded_ * size_of(y_.dtype), 256)), whole_(prepare(cublas, rows_at_once_)),
          last_(prepare(cublas, 1 + (y_.rows - 1) % rows_at_once_)) {}

    Bytes workspace() const override { return {rows_at_ + rows_at_once_ * padded_ * size_of(y_.dtype)}; }

    void run(const Launch& launch) const override {
        const cudaStream_t stream = stream_of(launch);
        std::byte *weight = launch.workspace + weight_at, *bias = launch.workspace + bias_at_;
        std::byte* rows = launch.workspace + rows_at_;
        launch_padded_copy(stream, weight_, launch.inputs[1], padded_, weight);
        if (has_bias_) launch_padded_copy(stream, {y_.dtype, y_.columns, 1, 1, 1}, launch.inputs[2], padded_, bias);
        for (std::int64_t row = 0; row < y_.rows; row += rows_at_once_) {
            const std::int64_t count = std::min(rows_at_once_, y_.rows - row);
            (count == rows_at_once_ ? whole_ : last_)
                ->run(stream,
                      {.left = launch.inputs[0] + row * x_.row_stride * size_of(x_.dtype),
                       .right = weight,
                       .bias = has_bias_ ? bias : nullptr,
                       .out = rows},
                      launch.workspace);
            launch_copy_rows(stream, {y_.dtype, count, y_.columns, padded_, 1}, rows, y_,
                             launch.outputs[0] + row * y_.row_stride * size_of(y_.dtype));
        }
    }

  private:
    static constexpr std::int64_t most_bytes = 512 << 20;
    static constexpr std::int64_t weight_at = round_up(Cublas::workspace.count, 256);

    std::shared_ptr<const PreparedMatmul> prepare(Cublas& cublas, std::int64_t rows) const {
        Matrix x = x_;
        x.rows = rows;
        const Matrix weight{weight_.dtype, padded_, weight_.columns, weight_.columns, 1};
        return cublas.prepare({x, weight.transposed(), {y_.dtype, rows, padded_, padded_, 1}, has_bias_});
    }

    Matrix x_, weight_, y_;
    bool has_bias_;
    std::int64_t padded_, rows_at_once_, bias_at_, rows_at_;
    std::shared_ptr<const PreparedMatmul> whole_, last_;
};

// y [r,n] = x [r,k] weight' [k,n] + bias
std::unique_ptr<Kernel> linear(Cublas& cublas, const KernelRequest& request) {
    const bool has_bias = request.inputs.size() == 3;
    const Matmul matmul{.left = matrix_of(request.inputs[0]),
                        .right = matrix_of(request.inputs[1]).transposed(),
                        .out = matrix_of(request.outputs[0]),
                        .has_bias = has_bias};
    if (PaddedLinear::is_worth_it(matmul)) return std::make_unique<PaddedLinear>(cublas, matmul);
    Places places;
    if (has_bias) places.bias = 2;
    return std::make_unique<MatmulKernel>(cublas, matmul, places);
}

// dx [r,k] = dy [r,n] weight [n,k] + addend
std::unique_ptr<Kernel> linear_input_gradient(Cublas& cublas, const KernelRequest& request) {
    Matmul matmul{.left = matrix_of(request.inputs[0]),
                  .right = matrix_of(request.inputs[1]),
                  .out = matrix_of(request.outputs[0])};
    Places places;
    if (request.inputs.size() == 3) {
        matmul.addend = matrix_of(request.inputs[2]);
        places.addend = 2;
    }
    return std::make_unique<MatmulKernel>(cublas, matmul, places);
}

// dweight [n,k] = dy' [n,r] x [r,k]
std::unique_ptr<Kernel> linear_weight_gradient(Cublas& cublas, const KernelRequest& request) {
    Matmul matmul{.left = matrix_of(request.inputs[0]).transposed(),
                  .right = matrix_of(request.inputs[1]),
                  .out = matrix_of(request.outputs[0])};
    if (request.accumulate) matmul.addend = matmul.out;
    return std::make_unique<MatmulKernel>(cublas, matmul, Places{.add_to_out = request.accumulate});
}

// The last two dimensions.
Matrix last_two(const Operand& operand, bool transpose) {
    const int rank = operand.type.shape.rank();
    const Matrix m{operand.type.dtype, operand.type.shape[rank - 2], operand.type.shape[rank - 1],
                   operand.strides[rank - 2], operand.strides[rank - 1]};
    return transpose ? m.transposed() : m;
}

// The batch dimensions, neighbours joined where their strides allow it. The largest is done by one call; of the others
// each element is a call of its own.
struct Batches {
    Batch inner;
    std::vector<Batch> outer = {{}};

    explicit Batches(const KernelRequest& request) {
        const Operand &a = request.inputs[0], &b = request.inputs[1], &y = request.outputs[0];
        std::vector<Batch> dims;
        for (int d = 0; d + 2 < y.type.shape.rank(); ++d) {
            const Batch dim{y.type.shape[d], a.strides[d], b.strides[d], y.strides[d]};
            if (dim.count == 1) continue;
            if (!dims.empty() && dims.back().left == dim.left * dim.count &&
                dims.back().right == dim.right * dim.count && dims.back().out == dim.out * dim.count)
                dims.back() = {dims.back().count * dim.count, dim.left, dim.right, dim.out};
            else
                dims.push_back(dim);
        }
        // Not one that an operand was expanded along.
        auto calls_saved = [](const Batch& dim) { return dim.left > 0 && dim.right > 0 ? dim.count : 0; };
        const auto largest = std::ranges::max_element(dims, {}, calls_saved);
        if (largest != dims.end() && calls_saved(*largest) > 0) {
            inner = *largest;
            dims.erase(largest);
        }
        for (const Batch& dim : dims) {
            std::vector<Batch> next;
            for (const Batch& at : outer)
                for (std::int64_t i = 0; i < dim.count; ++i)
                    next.push_back({1, at.left + i * dim.left, at.right + i * dim.right, at.out + i * dim.out});
            outer = std::move(next);
        }
    }
};

std::unique_ptr<Kernel> matmul(Cublas& cublas, const KernelRequest& request) {
    const Batches batches(request);
    const Matmul matmul{.left = last_two(request.inputs[0], request.attributes.flag("transpose_a")),
                        .right = last_two(request.inputs[1], request.attributes.flag("transpose_b")),
                        .out = last_two(request.outputs[0], false),
                        .batch = batches.inner};
    return std::make_unique<MatmulKernel>(cublas, matmul, Places{}, batches.outer);
}

void check_types(const KernelRequest& request) {
    for (const Operand& operand : request.inputs)
        if (operand.type.dtype != DType::float32 && operand.type.dtype != DType::bfloat16)
            fail_unsupported(backend_name, request);
}

} // namespace

void add_matrix_kernels(KernelTable& table, const std::shared_ptr<Cublas>& cublas) {
    using Make = std::unique_ptr<Kernel> (*)(Cublas&, const KernelRequest&);
    auto add = [&](const char* name, Make make) {
        table.add(name, PrepareKernel([make, cublas](const KernelRequest& request) {
                      check_types(request);
                      return make(*cublas, request);
                  }));
    };
    add("linear", linear);
    add("linear_input_gradient", linear_input_gradient);
    add("linear_weight_gradient", linear_weight_gradient);
    add("matmul", matmul);
}

} // namespace tutti::backend::cuda

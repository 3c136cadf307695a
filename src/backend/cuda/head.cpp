// The output head with its loss and all gradients, some rows at a time: the logits of these rows are all of them that
// is ever in memory. A vocabulary that is no multiple of 64 is padded with tokens whose weights are zero (see
// padded_extent), and which the loss does not know of. Where gradients are kept in bf16, those of weight and bias are
// summed over the rows in float32 and rounded once.
#include "backend/cuda/cublas.h"
#include "backend/cuda/loss.h"
#include "backend/cuda/matrix_kernels.h"
#include "base/error.h"

#include <algorithm>

namespace tutti::backend::cuda {
namespace {

// Where things lie in the workspace, in bytes: cuBLASLt's | these
struct Layout {
    std::int64_t logits = 0; // of some rows; become their gradients in place
    std::int64_t losses = 0; // of all rows
    // Where the vocabulary is padded: copies with zeros at the end.
    std::int64_t weight = 0, bias = 0;
    // Where they are not summed in place: sums over all rows, of all tokens.
    std::int64_t dweight = 0, dbias = 0;
    std::int64_t end = round_up(Cublas::workspace.count, 256);

    std::int64_t take(std::int64_t elements, DType dtype) {
        const std::int64_t at = end;
        end += round_up(elements * size_of(dtype), 256);
        return at;
    }
};

class HeadKernel : public Kernel {
  public:
    HeadKernel(Cublas& cublas, const Gpu& gpu, const KernelRequest& request)
        : gpu_(gpu), x_(matrix_of(request.inputs[1])), weight_(matrix_of(request.inputs[2])),
          dx_(matrix_of(request.outputs[1])), dweight_(matrix_of(request.outputs[2])),
          has_bias_(request.inputs.size() == 5), accumulate_(request.accumulate),
          seed_dtype_(request.inputs[0].type.dtype), ignore_index_(request.attributes.integer("ignore_index", -100)),
          vocabulary_(weight_.rows), padded_(padded_extent(vocabulary_)),
          rows_at_once_(std::min(request.attributes.integer("rows"), x_.rows)),
          sums_(x_.rows > rows_at_once_ ? DType::float32 : dweight_.dtype), layout_(lay_out()),
          whole_(prepare(cublas, rows_at_once_)), last_(prepare(cublas, 1 + (x_.rows - 1) % rows_at_once_)),
          first_dweight_(prepare_dweight(cublas, rows_at_once_, accumulate_ && in_place())) {}

    Bytes workspace() const override { return {layout_.end}; }

    void run(const Launch& launch) const override {
        const cudaStream_t stream = stream_of(launch);
        std::byte* const workspace = launch.workspace;
        auto* const losses = reinterpret_cast<float*>(workspace + layout_.losses);
        Weights weights{launch.inputs[2], has_bias_ ? launch.inputs[4] : nullptr,
                        in_place() ? launch.outputs[2] : workspace + layout_.dweight,
                        !has_bias_        ? nullptr
                        : bias_in_place() ? launch.outputs[3]
                                          : workspace + layout_.dbias};
        if (is_padded()) {
            launch_padded_copy(stream, weight_, weights.weight, padded_, workspace + layout_.weight);
            if (has_bias_)
                launch_padded_copy(stream, {x_.dtype, vocabulary_, 1, 1, 1}, weights.bias, padded_,
                                   workspace + layout_.bias);
            weights.weight = workspace + layout_.weight;
            if (has_bias_) weights.bias = workspace + layout_.bias;
        }
        for (std::int64_t row = 0; row < x_.rows; row += rows_at_once_)
            run_rows(launch, weights, row, row + rows_at_once_ < x_.rows ? whole_ : last_, losses + row);
        if (!in_place())
            launch_copy_rows(stream, first_rows(dweight_sums(), vocabulary_), weights.dweight, dweight_,
                             launch.outputs[2], accumulate_);
        if (has_bias_ && !bias_in_place())
            launch_copy_rows(stream, {sums_, 1, vocabulary_, vocabulary_, 1}, weights.dbias,
                             {dweight_.dtype, 1, vocabulary_, vocabulary_, 1}, launch.outputs[3], accumulate_);
        launch_loss_sum(losses, x_.rows, launch.out<float>(0), false, stream);
    }

  private:
    // The matmuls of some rows.
    struct Chunk {
        std::int64_t rows;
        std::shared_ptr<const PreparedMatmul> logits, dx, added_dweight;
    };
    // As the products take them.
    struct Weights {
        const std::byte *weight, *bias;
        std::byte *dweight, *dbias;
    };

    bool is_padded() const { return padded_ != vocabulary_; }
    // Whether the gradient of the weight, or of the bias, is summed where it goes.
    bool in_place() const { return !is_padded() && bias_in_place(); }
    bool bias_in_place() const { return sums_ == dweight_.dtype; }
    // What the gradient of the weight is summed in.
    Matrix dweight_sums() const {
        return in_place() ? dweight_ : Matrix{sums_, padded_, dweight_.columns, dweight_.columns, 1};
    }
    // A matrix of the vocabulary, as the products take it.
    Matrix padded(const Matrix& m) const { return is_padded() ? Matrix{m.dtype, padded_, m.columns, m.columns, 1} : m; }
    Matrix logits(std::int64_t rows) const { return {x_.dtype, rows, padded_, padded_, 1}; }
    static Matrix first_rows(Matrix m, std::int64_t rows) {
        m.rows = rows;
        return m;
    }

    Layout lay_out() const {
        Layout layout;
        layout.logits = layout.take(rows_at_once_ * padded_, x_.dtype);
        layout.losses = layout.take(x_.rows, DType::float32);
        if (!in_place()) layout.dweight = layout.take(padded_ * dweight_.columns, sums_);
        if (has_bias_ && !bias_in_place()) layout.dbias = layout.take(vocabulary_, sums_);
        if (!is_padded()) return layout;
        layout.weight = layout.take(padded_ * weight_.columns, weight_.dtype);
        if (has_bias_) layout.bias = layout.take(padded_, x_.dtype);
        return layout;
    }

    Chunk prepare(Cublas& cublas, std::int64_t rows) const {
        const Matrix weight = padded(weight_);
        Chunk chunk{.rows = rows,
                    .logits = cublas.prepare({first_rows(x_, rows), weight.transposed(), logits(rows), has_bias_}),
                    .dx = cublas.prepare({logits(rows), weight, first_rows(dx_, rows)}),
                    .added_dweight = nullptr};
        if (x_.rows > rows_at_once_) chunk.added_dweight = prepare_dweight(cublas, rows, true);
        return chunk;
    }
    std::shared_ptr<const PreparedMatmul> prepare_dweight(Cublas& cublas, std::int64_t rows, bool add) const {
        Matmul matmul{logits(rows).transposed(), first_rows(x_, rows), dweight_sums()};
        if (add) matmul.addend = matmul.out;
        return cublas.prepare(matmul);
    }

    void run_rows(const Launch& launch, const Weights& weights, std::int64_t first, const Chunk& chunk,
                  float* losses) const {
        const cudaStream_t stream = stream_of(launch);
        const std::byte* x = launch.inputs[1] + first * x_.row_stride * size_of(x_.dtype);
        std::byte* dx = launch.outputs[1] + first * dx_.row_stride * size_of(dx_.dtype);
        std::byte* logits = launch.workspace + layout_.logits;

        chunk.logits->run(stream, {.left = x, .right = weights.weight, .bias = weights.bias, .out = logits},
                          launch.workspace);
        launch_loss_and_gradient({.logits = logits,
                                  .dtype = x_.dtype,
                                  .targets = launch.in<std::int64_t>(3) + first,
                                  .rows = chunk.rows,
                                  .classes = vocabulary_,
                                  .stride = padded_,
                                  .ignore_index = ignore_index_},
                                 {launch.inputs[0], seed_dtype_}, losses, gpu_, stream);
        chunk.dx->run(stream, {.left = logits, .right = weights.weight, .out = dx}, launch.workspace);
        const auto& matmul = first > 0 ? chunk.added_dweight : first_dweight_;
        matmul->run(stream, {.left = logits, .right = x, .addend = weights.dweight, .out = weights.dweight},
                    launch.workspace);
        if (has_bias_)
            launch_column_sums(stream, x_.dtype, logits, chunk.rows, vocabulary_, padded_,
                               first > 0 || (accumulate_ && bias_in_place()), sums_, weights.dbias);
    }

    Gpu gpu_;
    Matrix x_, weight_, dx_, dweight_;
    bool has_bias_, accumulate_;
    DType seed_dtype_;
    std::int64_t ignore_index_, vocabulary_, padded_, rows_at_once_;
    DType sums_; // of the gradients of weight and bias
    Layout layout_;
    Chunk whole_, last_;
    std::shared_ptr<const PreparedMatmul> first_dweight_;
};

} // namespace

void add_head_kernels(KernelTable& table, const Gpu& gpu, const std::shared_ptr<Cublas>& cublas) {
    table.add("linear_cross_entropy_gradient",
              PrepareKernel([cublas, gpu](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                  const DType dtype = request.inputs[1].type.dtype;
                  if (dtype != DType::float32 && dtype != DType::bfloat16) fail_unsupported(backend_name, request);
                  return std::make_unique<HeadKernel>(*cublas, gpu, request);
              }));
}

} // namespace tutti::backend::cuda

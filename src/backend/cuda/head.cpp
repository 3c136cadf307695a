// The output head with its loss and all gradients, some rows at a time: the logits of these rows are all of them that
// is ever in memory.
#include "backend/cuda/cublas.h"
#include "backend/cuda/loss.h"
#include "backend/cuda/matrix_kernels.h"
#include "base/error.h"

#include <algorithm>

namespace tutti::cuda {
namespace {

constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b * b; }

// Workspace: cuBLASLt's | logits, which become their gradients in place | losses of all rows
class HeadKernel : public Kernel {
  public:
    HeadKernel(Cublas& cublas, const KernelRequest& request)
        : x_(matrix_of(request.inputs[1])), weight_(matrix_of(request.inputs[2])), dx_(matrix_of(request.outputs[1])),
          dweight_(matrix_of(request.outputs[2])), has_bias_(request.inputs.size() == 5),
          accumulate_(request.accumulate), ignore_index_(request.attributes.integer("ignore_index", -100)),
          rows_at_once_(std::min(request.attributes.integer("rows"), x_.rows)),
          logits_stride_(round_up(weight_.rows, 64)), // vocabularies such as 50257 have rows of any alignment
          logits_at_(round_up(Cublas::workspace.count, 256)),
          losses_at_(logits_at_ + round_up(rows_at_once_ * logits_stride_ * size_of(x_.dtype), 256)),
          whole_(prepare(cublas, rows_at_once_)), last_(prepare(cublas, 1 + (x_.rows - 1) % rows_at_once_)),
          first_dweight_(prepare_dweight(cublas, rows_at_once_, accumulate_)) {}

    Bytes workspace() const override { return {losses_at_ + x_.rows * size_of(DType::float32)}; }

    void run(const Launch& launch) const override {
        auto* const losses = reinterpret_cast<float*>(launch.workspace + losses_at_);
        for (std::int64_t row = 0; row < x_.rows; row += rows_at_once_)
            run_rows(launch, row, row + rows_at_once_ < x_.rows ? whole_ : last_, losses + row);
        launch_sum_losses(stream_of(launch), losses, x_.rows, launch.out<float>(0));
    }

  private:
    // The products of some rows.
    struct Chunk {
        std::int64_t rows;
        std::shared_ptr<const MatrixProduct> logits, dx, added_dweight;
    };

    Matrix logits(std::int64_t rows) const { return {x_.dtype, rows, weight_.rows, logits_stride_, 1}; }
    static Matrix part(Matrix m, std::int64_t rows) {
        m.rows = rows;
        return m;
    }

    Chunk prepare(Cublas& cublas, std::int64_t rows) const {
        Chunk chunk{.rows = rows,
                    .logits = cublas.prepare({part(x_, rows), weight_.transposed(), logits(rows), has_bias_}),
                    .dx = cublas.prepare({logits(rows), weight_, part(dx_, rows)}),
                    .added_dweight = nullptr};
        if (x_.rows > rows_at_once_) chunk.added_dweight = prepare_dweight(cublas, rows, true);
        return chunk;
    }
    std::shared_ptr<const MatrixProduct> prepare_dweight(Cublas& cublas, std::int64_t rows, bool add) const {
        Product product{logits(rows).transposed(), part(x_, rows), dweight_};
        if (add) product.addend = dweight_;
        return cublas.prepare(product);
    }

    void run_rows(const Launch& launch, std::int64_t first, const Chunk& chunk, float* losses) const {
        const cudaStream_t stream = stream_of(launch);
        const std::byte* x = launch.inputs[1] + first * x_.row_stride * size_of(x_.dtype);
        const std::byte* weight = launch.inputs[2];
        std::byte* dx = launch.outputs[1] + first * dx_.row_stride * size_of(dx_.dtype);
        std::byte* dweight = launch.outputs[2];
        std::byte* logits = launch.workspace + logits_at_;
        const std::byte* bias = has_bias_ ? launch.inputs[4] : nullptr;
        const bool add = accumulate_ || first > 0;

        chunk.logits->run(stream, {.left = x, .right = weight, .bias = bias, .out = logits}, launch.workspace);
        launch_cross_entropy_rows(stream, x_.dtype, logits, chunk.rows, weight_.rows, logits_stride_,
                                  launch.in<std::int64_t>(3) + first, ignore_index_, launch.in<float>(0), losses);
        chunk.dx->run(stream, {.left = logits, .right = weight, .out = dx}, launch.workspace);
        const auto& product = first > 0 ? chunk.added_dweight : first_dweight_;
        product->run(stream, {.left = logits, .right = x, .addend = add ? dweight : nullptr, .out = dweight},
                     launch.workspace);
        if (has_bias_)
            launch_column_sums(stream, x_.dtype, logits, chunk.rows, weight_.rows, logits_stride_, add,
                               launch.out<float>(3));
    }

    Matrix x_, weight_, dx_, dweight_;
    bool has_bias_, accumulate_;
    std::int64_t ignore_index_, rows_at_once_, logits_stride_, logits_at_, losses_at_;
    Chunk whole_, last_;
    std::shared_ptr<const MatrixProduct> first_dweight_;
};

} // namespace

void add_head_kernels(KernelTable& table, const Gpu& gpu) {
    const auto cublas = std::make_shared<Cublas>(gpu);
    table.add("linear_cross_entropy_gradient",
              PrepareKernel([cublas](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                  const DType dtype = request.inputs[1].type.dtype;
                  if (dtype != DType::float32 && dtype != DType::bfloat16) fail_unsupported(backend_name, request);
                  return std::make_unique<HeadKernel>(*cublas, request);
              }));
}

} // namespace tutti::cuda

// Matmuls of bf16 on CPUs for which oneDNN has none (without AVX-512): in float32, on copies of the operands. Sums are
// float32 and results rounded once, as there.
#include "backend/cpu/onednn.h"

#include "base/dtype.h"

#include <array>

namespace tutti::backend::cpu {
namespace {

// As the matrix lies, but dense.
Matrix dense(const Matrix& m) {
    if (m.by_rows()) return {DType::float32, m.rows, m.columns, m.columns, 1};
    return {DType::float32, m.rows, m.columns, 1, m.rows};
}

std::int64_t floats_of(const Matrix& m) { return (m.rows * m.columns + 15) / 16 * 16; } // a whole cache line

// Calls `line(strided, packed, count)` for the lines of a matrix: where they begin there and in a dense copy.
template <class Line>
void for_lines(const Matrix& m, const Line& line) {
    const Matrix lying = m.by_rows() ? m : m.transposed();
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < lying.rows; ++row)
        line(row * lying.row_stride, row * lying.columns, lying.columns);
}

void widen(const Matrix& m, const BFloat16* from, float* to) {
    for_lines(m, [&](std::int64_t strided, std::int64_t packed, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) to[packed + i] = static_cast<float>(from[strided + i]);
    });
}

void narrow_to(const Matrix& m, const float* from, BFloat16* to) {
    for_lines(m, [&](std::int64_t strided, std::int64_t packed, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) to[strided + i] = BFloat16(from[packed + i]);
    });
}

// Workspace: left | right | bias | result | what the product needs
class WidenedMatmul : public Kernel {
  public:
    WidenedMatmul(const std::shared_ptr<Onednn>& onednn, const Matmul& matmul)
        : matmul_(matmul), bias_{DType::bfloat16, 1, matmul.out.columns, matmul.out.columns, 1},
          narrow_out_(matmul.out.dtype == DType::bfloat16) {
        const Matmul wide{.left = dense(matmul.left),
                          .right = dense(matmul.right),
                          .out = narrow_out_ ? dense(matmul.out) : matmul.out,
                          .has_bias = matmul.has_bias,
                          .accumulate = matmul.accumulate};
        multiply_ = make_matmul(onednn, wide);
        right_at_ = floats_of(matmul.left);
        bias_at_ = right_at_ + floats_of(matmul.right);
        out_at_ = bias_at_ + floats_of(bias_);
        inner_at_ = out_at_ + (narrow_out_ ? floats_of(matmul.out) : 0);
    }

    Bytes workspace() const override { return Bytes{inner_at_ * size_of(DType::float32)} + multiply_->workspace(); }

    void run(const Launch& launch) const override {
        if (matmul_.has_bias) widen(bias_, launch.in<BFloat16>(2), floats(launch, bias_at_));
        const std::vector<Batch> one(1);
        for (const Batch& outer : matmul_.outer.empty() ? one : matmul_.outer)
            for (std::int64_t i = 0; i < matmul_.batch.count; ++i)
                run_at(launch, {1, outer.left + i * matmul_.batch.left, outer.right + i * matmul_.batch.right,
                                outer.out + i * matmul_.batch.out});
    }

  private:
    static float* floats(const Launch& launch, std::int64_t at) {
        return reinterpret_cast<float*>(launch.workspace) + at;
    }

    void run_at(const Launch& launch, const Batch& at) const {
        float *const left = floats(launch, 0), *const right = floats(launch, right_at_);
        widen(matmul_.left, launch.in<BFloat16>(matmul_.left_input) + at.left, left);
        widen(matmul_.right, launch.in<BFloat16>(matmul_.right_input) + at.right, right);
        float* const out = narrow_out_ ? floats(launch, out_at_) : launch.out<float>(0) + at.out;
        if (narrow_out_ && matmul_.accumulate) widen(matmul_.out, launch.out<BFloat16>(0) + at.out, out);
        auto bytes = [](float* data) { return reinterpret_cast<std::byte*>(data); };
        const std::array<const std::byte*, 3> inputs{bytes(left), bytes(right), bytes(floats(launch, bias_at_))};
        const std::array<std::byte*, 1> outputs{bytes(out)};
        Launch wide = launch;
        wide.inputs = inputs;
        wide.outputs = outputs;
        wide.workspace = bytes(floats(launch, inner_at_));
        multiply_->run(wide);
        if (narrow_out_) narrow_to(matmul_.out, out, launch.out<BFloat16>(0) + at.out);
    }

    Matmul matmul_;
    Matrix bias_;
    bool narrow_out_;
    std::unique_ptr<Kernel> multiply_;
    std::int64_t right_at_ = 0, bias_at_ = 0, out_at_ = 0, inner_at_ = 0; // floats
};

} // namespace

std::unique_ptr<Kernel> make_widened(const std::shared_ptr<Onednn>& onednn, const Matmul& matmul) {
    return std::make_unique<WidenedMatmul>(onednn, matmul);
}

} // namespace tutti::backend::cpu

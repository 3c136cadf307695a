// The float32 matmuls for which oneDNN's older matrix product is the faster one.
#include "backend/cpu/onednn.h"
#include "base/error.h"

#include <algorithm>
#include <mutex>

namespace tutti::backend::cpu {
namespace {

class GemmKernel : public Kernel {
  public:
    explicit GemmKernel(const Matmul& matmul) : matmul_(matmul) {}

    void run(const Launch& launch) const override {
        const Matmul& p = matmul_;
        auto* const out = launch.out<float>(0);
        if (p.has_bias) spread_bias(launch.in<float>(2), out);
        const dnnl_status_t status = dnnl_sgemm(p.left.by_rows() ? 'N' : 'T', p.right.by_rows() ? 'N' : 'T', p.out.rows,
                                                p.out.columns, p.left.columns, 1.0f, launch.in<float>(p.left_input),
                                                leading(p.left), launch.in<float>(p.right_input), leading(p.right),
                                                p.accumulate || p.has_bias ? 1.0f : 0.0f, out, p.out.row_stride);
        TUTTI_CHECK(status == dnnl_success, "oneDNN status {}", static_cast<int>(status));
    }

  private:
    static std::int64_t leading(const Matrix& m) { return m.by_rows() ? m.row_stride : m.column_stride; }

    // The product is then added to it.
    void spread_bias(const float* bias, float* out) const {
#pragma omp parallel for schedule(static)
        for (std::int64_t row = 0; row < matmul_.out.rows; ++row)
            std::copy_n(bias, matmul_.out.columns, out + row * matmul_.out.row_stride);
    }

    Matmul matmul_;
};

} // namespace

bool prefers_gemm(const Matmul& p) {
    const bool plain = p.left.dtype == DType::float32 && p.out.dtype == DType::float32 && p.batch.count == 1 &&
                       p.outer.empty() && p.out.by_rows();
    // Rows of the right operand that lie a multiple of 4 KiB apart fall into the same few sets of the first cache: on
    // Intel's AVX-512 cores the matmul primitive drops to less than half (GPT-2's 3072 columns: 137 against 325
    // GFLOP/s).
    const bool aliasing = p.right.by_rows() && p.right.row_stride % 1024 == 0 && p.right.columns >= 1024;
    return plain && aliasing;
}

std::unique_ptr<Kernel> make_gemm(const Matmul& matmul) {
    // The routine makes its code, for every shape, when it is first called: some MB that belong to preparing.
    static std::once_flag called;
    std::call_once(called, [] {
        const float in[4] = {};
        float out[4] = {};
        dnnl_sgemm('N', 'N', 2, 2, 2, 1.0f, in, 2, in, 2, 0.0f, out, 2);
    });
    return std::make_unique<GemmKernel>(matmul);
}

} // namespace tutti::backend::cpu

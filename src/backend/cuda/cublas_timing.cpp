// Which of several algorithms is the fastest for a matmul: timed on random data that does not lie in the cache.
#include "backend/cuda/cublas.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/timing.h"

#include <algorithm>
#include <limits>

namespace tutti::backend::cuda {
namespace {

std::int64_t span_of(const Matrix& m, std::int64_t batches, std::int64_t batch_stride) {
    return 1 + (m.rows - 1) * m.row_stride + (m.columns - 1) * m.column_stride + (batches - 1) * batch_stride;
}

std::int64_t rounded_bytes(std::int64_t elements, DType dtype) { return (elements * size_of(dtype) + 255) / 256 * 256; }

// Operands of one matmul, one behind the other.
struct OperandSet {
    std::int64_t left, right, bias, out, addend; // bytes; no addend where it is added in place

    explicit OperandSet(const Matmul& p)
        : left(rounded_bytes(span_of(p.left, p.batch.count, p.batch.left), p.left.dtype)),
          right(rounded_bytes(span_of(p.right, p.batch.count, p.batch.right), p.right.dtype)),
          bias(rounded_bytes(p.out.columns, p.out.dtype)),
          out(rounded_bytes(span_of(p.out, p.batch.count, p.batch.out), p.out.dtype)),
          addend(!p.addend ||
                         (p.addend->row_stride == p.out.row_stride && p.addend->column_stride == p.out.column_stride)
                     ? 0
                     : rounded_bytes(span_of(*p.addend, 1, 0), p.out.dtype)) {}

    std::int64_t bytes() const { return left + right + bias + out + addend; }
    void fill(cudaStream_t stream, const Matmul& p, std::byte* at) const {
        launch_random_values(stream, p.left.dtype, at, (left + right) / size_of(p.left.dtype));
        launch_random_values(stream, p.out.dtype, at + left + right, (bias + out + addend) / size_of(p.out.dtype));
    }
    MatmulPointers pointers(std::byte* at) const {
        std::byte* const result = at + left + right + bias;
        return {.left = at,
                .right = at + left,
                .bias = at + left + right,
                .addend = addend > 0 ? result + out : result,
                .out = result};
    }
};

} // namespace

// The first candidate and no time where there is no memory for it.
std::size_t Cublas::measure(const PreparedMatmul& matmul,
                            const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                            double& microseconds) const {
    const Matmul& p = matmul.matmul_;
    const OperandSet set(p);
    const std::int64_t sets = std::clamp<std::int64_t>(2 * l2_bytes_ / set.bytes() + 1, 1, 64);
    const DeviceBlock block(workspace.count + sets * set.bytes());
    microseconds = 0;
    if (!block.data()) return 0;

    const CudaQueue queue(std::make_shared<Streams>());
    const Stopwatch watch(queue.stream());
    std::byte* const operands = block.data() + workspace.count;
    for (std::int64_t i = 0; i < sets; ++i) set.fill(queue.stream(), p, operands + i * set.bytes());
    std::int64_t next = 0;
    // Average over some runs; infinity where the algorithm does not run after all.
    auto time = [&](std::size_t candidate, int runs) {
        bool failed = false;
        const double total = watch.microseconds([&] {
            for (int i = 0; i < runs; ++i, next = (next + 1) % sets)
                failed |=
                    matmul.run_with(candidates[candidate].algo, queue.stream(),
                                    set.pointers(operands + next * set.bytes()), block.data()) != CUBLAS_STATUS_SUCCESS;
        });
        if (!failed) return total / runs;
        (void)cudaGetLastError();
        return std::numeric_limits<double>::infinity();
    };
    return fastest(candidates.size(), time, microseconds);
}

} // namespace tutti::backend::cuda

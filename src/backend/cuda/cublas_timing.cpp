// Which of several algorithms is the fastest for a matmul: timed on random data that does not lie in the cache.
#include "backend/cuda/cublas.h"
#include "backend/cuda/matrix_kernels.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::backend::cuda {
namespace {

// Nothing where there is no room.
class DeviceBlock {
  public:
    explicit DeviceBlock(std::int64_t bytes) {
        if (cudaMalloc(&data_, static_cast<std::size_t>(bytes)) == cudaSuccess) return;
        (void)cudaGetLastError();
        data_ = nullptr;
    }
    ~DeviceBlock() { cudaFree(data_); }
    DeviceBlock(const DeviceBlock&) = delete;
    DeviceBlock& operator=(const DeviceBlock&) = delete;

    std::byte* data() const { return static_cast<std::byte*>(data_); }

  private:
    void* data_ = nullptr;
};

class Stopwatch {
  public:
    Stopwatch() {
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
        for (cudaEvent_t* event : {&begin_, &end_}) check(cudaEventCreate(event), "making an event");
    }
    ~Stopwatch() {
        for (const cudaEvent_t event : {begin_, end_})
            if (event) cudaEventDestroy(event);
        cudaStreamDestroy(stream_);
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

    cudaStream_t stream() const { return stream_; }
    // The time that `work` takes on the device.
    template <class Work>
    double microseconds(const Work& work) const {
        check(cudaEventRecord(begin_, stream_), "timing a matmul");
        work();
        check(cudaEventRecord(end_, stream_), "timing a matmul");
        check(cudaEventSynchronize(end_), "timing a matmul");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing a matmul");
        return 1000.0 * milliseconds;
    }

  private:
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

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

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

} // namespace

// Every candidate once, then the best few in turns, so that a change of the GPU's clock meets all of them. A turn is
// long enough to bring the GPU to its power limit where the product can: there it slows down, and not all algorithms by
// the same. About half a second for large matmuls, less for small ones. Gives the first candidate and no time where
// there is no memory for it.
std::size_t Cublas::measure(const PreparedMatmul& matmul,
                            const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                            double& microseconds) const {
    constexpr double shortest = 200, first_budget = 50e3, turn = 20e3; // microseconds
    constexpr double most_in_turn = 100;
    constexpr std::size_t finalists = 4, fewest_candidates = 8, rounds = 3;
    const Matmul& p = matmul.matmul_;
    const OperandSet set(p);
    const std::int64_t sets = std::clamp<std::int64_t>(2 * l2_bytes_ / set.bytes() + 1, 1, 64);
    const DeviceBlock block(workspace.count + sets * set.bytes());
    microseconds = 0;
    if (!block.data()) return 0;

    const Stopwatch watch;
    std::byte* const operands = block.data() + workspace.count;
    for (std::int64_t i = 0; i < sets; ++i) set.fill(watch.stream(), p, operands + i * set.bytes());
    std::int64_t next = 0;
    // Average over some runs; infinity where the algorithm does not run after all.
    auto time = [&](std::size_t candidate, int runs) {
        bool failed = false;
        const double total = watch.microseconds([&] {
            for (int i = 0; i < runs; ++i, next = (next + 1) % sets)
                failed |=
                    matmul.run_with(candidates[candidate].algo, watch.stream(),
                                    set.pointers(operands + next * set.bytes()), block.data()) != CUBLAS_STATUS_SUCCESS;
        });
        if (!failed) return total / runs;
        (void)cudaGetLastError();
        return std::numeric_limits<double>::infinity();
    };

    struct Timed {
        std::size_t candidate;
        double first;
        std::vector<double> all;
    };
    std::vector<Timed> timed;
    double spent = 0;
    for (std::size_t i = 0; i < candidates.size() && (i < fewest_candidates || spent < first_budget); ++i) {
        time(i, 1); // loads the code
        const double once = time(i, 1);
        if (!std::isfinite(once)) continue;
        const int runs = static_cast<int>(std::clamp(std::ceil(shortest / std::max(once, 1.0)), 1.0, 50.0));
        const double first = runs > 1 ? time(i, runs) : once;
        spent += once + (runs > 1 ? runs * first : 0);
        timed.push_back({i, first, {}});
    }
    if (timed.empty()) return 0;
    std::ranges::stable_sort(timed, {}, &Timed::first);
    timed.resize(std::min(timed.size(), finalists), timed.front());
    for (std::size_t round = 0; round < rounds; ++round)
        for (Timed& one : timed) {
            const int runs =
                static_cast<int>(std::clamp(std::ceil(turn / std::max(one.first, 1.0)), 1.0, most_in_turn));
            time(one.candidate, runs); // until the clock has settled
            one.all.push_back(time(one.candidate, runs));
        }
    const auto best = std::ranges::min_element(timed, {}, [](const Timed& one) { return median(one.all); });
    microseconds = median(best->all);
    return best->candidate;
}

} // namespace tutti::backend::cuda

// Softmax over rows and its gradient, and cumulative sums. A row belongs to one warp or one block, which reads it
// several times; what was read stays near in the cache.
#include "backend/cuda/elementwise.h"
#include "backend/cuda/reduction.h"

#include <limits>

namespace tutti::backend::cuda {
namespace {

constexpr int block_threads = 256;
constexpr std::int64_t widest_of_warp = 1024;

// Combines the values of all threads of a row: a warp, or the whole block. Every thread gets the result.
template <int threads, class Warp>
__device__ float row_combine(float value, float start, Warp warp) {
    value = warp(value);
    if constexpr (threads == warp_size) return value;
    __shared__ float shared[block_threads / warp_size];
    const int lane = threadIdx.x % warp_size;
    if (lane == 0) shared[threadIdx.x / warp_size] = value;
    __syncthreads();
    value = warp(lane < block_threads / warp_size ? shared[lane] : start);
    __syncthreads(); // before it is used again
    return value;
}
template <int threads>
__device__ float row_sum(float value) {
    return row_combine<threads>(value, 0, [](float x) { return warp_sum(x); });
}
template <int threads>
__device__ float row_max(float value) {
    return row_combine<threads>(value, -INFINITY, [](float x) { return warp_max(x); });
}

// The row of this thread's warp or block.
template <int threads>
__device__ std::int64_t own_row() {
    return (std::int64_t{blockIdx.x} * block_threads + threadIdx.x) / threads;
}

// The output may be the input: it is written when all of the row has been read for the last time but for a thread's own
// elements.
template <int threads, class T>
__global__ void __launch_bounds__(block_threads)
    softmax_kernel(Strided rows, std::int64_t width, const T* all, T* out) {
    const std::int64_t row = own_row<threads>();
    if (row >= rows.count) return;
    const T* x = all + rows.at(row);
    T* y = out + row * width;
    const int first = threadIdx.x % threads;
    float most = -INFINITY;
    for (std::int64_t i = first; i < width; i += threads) most = fmaxf(most, to_float(x[i]));
    most = row_max<threads>(most);
    float sum = 0;
    for (std::int64_t i = first; i < width; i += threads) sum += expf(to_float(x[i]) - most);
    const float inverse = 1.0f / row_sum<threads>(sum);
    for (std::int64_t i = first; i < width; i += threads) y[i] = from_float<T>(expf(to_float(x[i]) - most) * inverse);
}

// dx = y (dy - sum(dy y)); dx may be dy.
template <int threads, class T>
__global__ void __launch_bounds__(block_threads)
    softmax_gradient_kernel(Strided dy_rows, Strided y_rows, std::int64_t width, const T* all_dy, const T* all_y,
                            T* out) {
    const std::int64_t row = own_row<threads>();
    if (row >= dy_rows.count) return;
    const T *dy = all_dy + dy_rows.at(row), *y = all_y + y_rows.at(row);
    T* dx = out + row * width;
    const int first = threadIdx.x % threads;
    float sum = 0;
    for (std::int64_t i = first; i < width; i += threads) sum += to_float(dy[i]) * to_float(y[i]);
    sum = row_sum<threads>(sum);
    for (std::int64_t i = first; i < width; i += threads)
        dx[i] = from_float<T>(to_float(y[i]) * (to_float(dy[i]) - sum));
}

// All dimensions but the last.
Strided rows_of(Operand operand) {
    operand.type.shape.erase(operand.type.shape.rank() - 1);
    operand.strides.erase(operand.strides.rank() - 1);
    return Strided(operand);
}

template <class T>
class Softmax : public Kernel {
  public:
    explicit Softmax(const KernelRequest& request)
        : rows_(rows_of(request.inputs[0])), width_(request.inputs[0].type.shape.back()) {}
    void run(const Launch& launch) const override {
        const bool warps = width_ <= widest_of_warp;
        const auto blocks =
            static_cast<unsigned>(warps ? divide_up(rows_.count, block_threads / warp_size) : rows_.count);
        auto* kernel = warps ? softmax_kernel<warp_size, T> : softmax_kernel<block_threads, T>;
        kernel<<<blocks, block_threads, 0, stream_of(launch)>>>(rows_, width_, launch.in<T>(0), launch.out<T>(0));
        launched("softmax");
    }

  private:
    Strided rows_;
    std::int64_t width_;
};

template <class T>
class SoftmaxGradient : public Kernel {
  public:
    explicit SoftmaxGradient(const KernelRequest& request)
        : dy_(rows_of(request.inputs[0])), y_(rows_of(request.inputs[1])), width_(request.inputs[0].type.shape.back()) {
    }
    void run(const Launch& launch) const override {
        const bool warps = width_ <= widest_of_warp;
        const auto blocks = static_cast<unsigned>(warps ? divide_up(dy_.count, block_threads / warp_size) : dy_.count);
        auto* kernel = warps ? softmax_gradient_kernel<warp_size, T> : softmax_gradient_kernel<block_threads, T>;
        kernel<<<blocks, block_threads, 0, stream_of(launch)>>>(dy_, y_, width_, launch.in<T>(0), launch.in<T>(1),
                                                                launch.out<T>(0));
        launched("softmax_gradient");
    }

  private:
    Strided dy_, y_;
    std::int64_t width_;
};

// ---- cumsum

// Lines along one dimension: where each begins, and the step along it.
struct Lines {
    Strided at;
    std::int64_t step = 0;

    Lines(Operand operand, int dim) : step(operand.strides[dim]) {
        operand.type.shape.erase(dim);
        operand.strides.erase(dim);
        at = Strided(operand);
    }
};

template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

// A warp for each line, 32 elements at a time.
template <class T>
__global__ void __launch_bounds__(block_threads)
    cumsum_kernel(Lines from, Lines to, std::int64_t size, bool reverse, const T* __restrict__ x, T* __restrict__ y) {
    const std::int64_t line = own_row<warp_size>();
    if (line >= from.at.count) return;
    x += from.at.at(line);
    y += to.at.at(line);
    const int lane = threadIdx.x % warp_size;
    Sum<T> before = 0;
    for (std::int64_t begin = 0; begin < size; begin += warp_size) {
        const std::int64_t n = begin + lane, i = reverse ? size - 1 - n : n;
        Sum<T> sum = n < size ? static_cast<Sum<T>>(value_of(x[i * from.step])) : 0;
        for (int offset = 1; offset < warp_size; offset *= 2) {
            const Sum<T> other = __shfl_up_sync(0xffffffffu, sum, offset);
            if (lane >= offset) sum += other;
        }
        sum += before;
        if (n < size) y[i * to.step] = stored<T>(sum);
        before = __shfl_sync(0xffffffffu, sum, warp_size - 1);
    }
}

template <class T>
class CumulativeSum : public Kernel {
  public:
    CumulativeSum(const KernelRequest& request, int dim)
        : from_(request.inputs[0], dim), to_(request.outputs[0], dim), size_(request.inputs[0].type.shape[dim]),
          reverse_(request.attributes.flag("reverse")) {}
    void run(const Launch& launch) const override {
        const auto blocks = static_cast<unsigned>(divide_up(from_.at.count, block_threads / warp_size));
        cumsum_kernel<<<blocks, block_threads, 0, stream_of(launch)>>>(from_, to_, size_, reverse_, launch.in<T>(0),
                                                                       launch.out<T>(0));
        launched("cumsum");
    }

  private:
    Lines from_, to_;
    std::int64_t size_;
    bool reverse_;
};

std::unique_ptr<Kernel> prepare_cumsum(const KernelRequest& request) {
    const std::int64_t dim = request.attributes.integer("dim");
    const auto from_start = static_cast<int>(dim < 0 ? dim + request.inputs[0].type.shape.rank() : dim);
    return for_number(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<CumulativeSum<T>>(request, from_start);
    });
}

} // namespace

void add_row_kernels(KernelTable& table) {
    add_floating<Softmax>(table, "softmax");
    add_floating<SoftmaxGradient>(table, "softmax_gradient");
    table.add("cumsum", PrepareKernel(prepare_cumsum));
}

} // namespace tutti::backend::cuda

// Sums over rows: gradients of biases and of the norms' scale and shift.
//
//   32 threads side by side take 32 neighbouring packs of a row, 8 such lines of threads every eighth row of a block of
//   rows; the lines are added in shared memory, the blocks of rows by `finish`.
#include "backend/cuda/columns.h"
#include "backend/cuda/norm.h"
#include "backend/cuda/rows.h"

namespace tutti::backend::cuda {
namespace {

enum class Summed { bias, rms_norm, layer_norm };

constexpr int lines = 8;
constexpr int resident(Summed summed) { return summed == Summed::bias ? 4 : 3; }  // blocks of a multiprocessor
constexpr int in_flight(Summed summed) { return summed == Summed::bias ? 8 : 3; } // rows that a thread loads at once

template <class T>
struct SummedRows {
    const T *dy, *x;
    const float *mean, *rstd;
    Strided dy_rows, x_rows, mean_at, rstd_at;
    std::int64_t rows, width, block; // rows of a block
};

// Where number i lies; packs are taken only from what is evenly spaced.
template <int size>
__device__ std::int64_t place(const Strided& strided, std::int64_t i) {
    if constexpr (size > 1)
        return i * strided.strides[0];
    else
        return strided.at(i);
}

// bias: sum dy;  rms_norm: sum dy x rstd;  layer_norm: sum dy (x - mean) rstd, sum dy
template <class T, int size, Summed summed>
__global__ __launch_bounds__(warp_size* lines, resident(summed)) void sum_rows(SummedRows<T> a, ColumnSum<T>* partial) {
    using Sum = ColumnSum<T>;
    constexpr int sums = summed == Summed::layer_norm ? 2 : 1, columns = warp_size * size, loads = in_flight(summed);
    constexpr bool normalized = summed != Summed::bias;
    __shared__ Sum shared[lines][columns];
    const std::int64_t first_column = std::int64_t{blockIdx.x} * columns;
    const std::int64_t column = first_column + threadIdx.x * size;
    const std::int64_t begin = blockIdx.y * a.block, end = min(a.rows, begin + a.block);
    Sum total[sums][size] = {};
    if (column < a.width)
        for (std::int64_t row = begin + threadIdx.y; row < end; row += lines * loads) {
            Elements<T, size> dy[loads] = {}, x[loads] = {};
            float mean[loads] = {}, rstd[loads] = {};
#pragma unroll
            for (int i = 0; i < loads; ++i) {
                const std::int64_t at = row + i * lines;
                if (at >= end) continue;
                dy[i] = load_elements<size>(a.dy + place<size>(a.dy_rows, at) + column);
                if constexpr (normalized) {
                    x[i] = load_elements<size>(a.x + place<size>(a.x_rows, at) + column);
                    rstd[i] = a.rstd[place<size>(a.rstd_at, at)];
                }
                if constexpr (summed == Summed::layer_norm) mean[i] = a.mean[place<size>(a.mean_at, at)];
            }
#pragma unroll
            for (int i = 0; i < loads; ++i) // rows beyond the end add zeros
                for (int e = 0; e < size; ++e) {
                    const Sum gradient = to_float(dy[i].element[e]);
                    if constexpr (normalized)
                        total[0][e] += gradient * ((Sum{to_float(x[i].element[e])} - mean[i]) * rstd[i]);
                    else
                        total[0][e] += gradient;
                    if constexpr (sums == 2) total[1][e] += gradient;
                }
        }
    for (int s = 0; s < sums; ++s) {
        for (int e = 0; e < size; ++e)
            shared[threadIdx.y][threadIdx.x * size + e] = s == 0 ? total[0][e] : total[sums - 1][e];
        __syncthreads();
        for (int c = static_cast<int>(threadIdx.y * warp_size + threadIdx.x); c < columns; c += warp_size * lines) {
            Sum sum = 0;
            for (int line = 0; line < lines; ++line) sum += shared[line][c];
            if (first_column + c < a.width)
                partial[(std::int64_t{blockIdx.y} * sums + s) * a.width + first_column + c] = sum;
        }
        __syncthreads();
    }
}

// Stores a sum, or adds it to what is there.
template <class Out>
__device__ void put(std::byte* to, std::int64_t at, double total, bool accumulate) {
    Out& out = reinterpret_cast<Out*>(to)[at];
    if (accumulate) total += static_cast<double>(to_float(out));
    out = from_float<Out>(static_cast<float>(total));
}

constexpr int finish_columns = 16, finish_lines = 64;

template <class Sum>
__global__ __launch_bounds__(finish_columns* finish_lines) void finish(const Sum* partial, std::int64_t count,
                                                                       std::int64_t width, ColumnOutputs outputs) {
    __shared__ double shared[finish_lines][finish_columns];
    const int s = static_cast<int>(blockIdx.y);
    const std::int64_t column = std::int64_t{blockIdx.x} * finish_columns + threadIdx.x;
    double total = 0;
    if (column < width)
#pragma unroll 8
        for (std::int64_t i = threadIdx.y; i < count; i += finish_lines)
            total += static_cast<double>(partial[(i * outputs.sums + s) * width + column]);
    shared[threadIdx.y][threadIdx.x] = total;
    for (unsigned half = finish_lines / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) shared[threadIdx.y][threadIdx.x] += shared[threadIdx.y + half][threadIdx.x];
    }
    if (threadIdx.y > 0 || column >= width) return;
    total = shared[0][threadIdx.x];
    std::byte* to = s == 0 ? outputs.to[0] : outputs.to[1];
    const std::int64_t at = column * (s == 0 ? outputs.strides[0] : outputs.strides[1]);
    if (outputs.is_narrow)
        put<bf16>(to, at, total, outputs.accumulate);
    else
        put<float>(to, at, total, outputs.accumulate);
}

template <class T, Summed summed>
class ColumnSums : public Kernel {
  public:
    ColumnSums(const KernelRequest& request, const Gpu& gpu)
        : outputs_(request, 0), multiprocessors_(gpu.multiprocessors) {
        rows_.dy_rows = rows_of(request.inputs[0]);
        rows_.rows = rows_.dy_rows.count, rows_.width = width_of(request.inputs[0]);
        fits_ = rows_.width % Pack<T>::size == 0 && even(rows_.dy_rows) && rows_fit(rows_.dy_rows, Pack<T>::size);
        if constexpr (summed == Summed::bias) return;
        rows_.x_rows = rows_of(request.inputs[1]);
        if constexpr (summed == Summed::layer_norm) rows_.mean_at = Strided(request.inputs[2]);
        rows_.rstd_at = Strided(request.inputs[rstd]);
        fits_ = fits_ && even(rows_.x_rows) && rows_fit(rows_.x_rows, Pack<T>::size) && even(rows_.mean_at) &&
                even(rows_.rstd_at);
    }

    Bytes workspace() const override {
        const std::int64_t most = std::max(grid(1).y, grid(Pack<T>::size).y);
        return {most * outputs_.sums * rows_.width * static_cast<std::int64_t>(sizeof(Sum))};
    }

    void run(const Launch& l) const override {
        if (rows_.width == 0) return;
        SummedRows<T> a = rows_;
        a.dy = l.in<T>(0);
        if constexpr (summed != Summed::bias) a.x = l.in<T>(1), a.rstd = l.in<float>(rstd);
        if constexpr (summed == Summed::layer_norm) a.mean = l.in<float>(2);
        auto* partial = reinterpret_cast<Sum*>(l.workspace);
        const bool packs = fits_ && aligned({a.dy, a.x});
        const dim3 blocks = grid(packs ? Pack<T>::size : 1);
        a.block = std::max<std::int64_t>(1, divide_up(a.rows, blocks.y));
        if (packs)
            sum_rows<T, Pack<T>::size, summed><<<blocks, dim3(warp_size, lines), 0, stream_of(l)>>>(a, partial);
        else
            sum_rows<T, 1, summed><<<blocks, dim3(warp_size, lines), 0, stream_of(l)>>>(a, partial);
        launched("sums over rows");
        ColumnOutputs outputs = outputs_;
        for (int s = 0; s < outputs.sums; ++s) outputs.to[s] = l.outputs[static_cast<std::size_t>(s)];
        launch_finish_columns(partial, blocks.y, a.width, outputs, stream_of(l));
    }

  private:
    using Sum = ColumnSum<T>;
    static constexpr std::size_t rstd = summed == Summed::layer_norm ? 3 : 2; // its place among the inputs

    static bool even(const Strided& strided) { return strided.rank <= 1; }

    // Columns by blocks of rows: as many as run at once, each with rows enough to be worth it.
    dim3 grid(int size) const {
        const std::int64_t across = std::max<std::int64_t>(1, divide_up(rows_.width, warp_size * size));
        const std::int64_t most = std::max<std::int64_t>(1, multiprocessors_ * resident(summed) / across);
        const std::int64_t blocks = std::clamp<std::int64_t>(divide_up(rows_.rows, in_flight(summed) * lines), 1, most);
        return {static_cast<unsigned>(across), static_cast<unsigned>(blocks)};
    }

    SummedRows<T> rows_{};
    ColumnOutputs outputs_;
    std::int64_t multiprocessors_;
    bool fits_ = false;
};

// dy given column by column: a block for each column, whose elements are neighbours.
template <class T>
__global__ __launch_bounds__(256) void sum_columns(const T* dy, std::int64_t rows, std::int64_t stride, bool packs,
                                                   ColumnOutputs outputs) {
    __shared__ double shared[256 / warp_size];
    const T* column = dy + blockIdx.x * stride;
    double total = 0;
    if (packs) {
        constexpr int size = Pack<T>::size;
        for (std::int64_t i = std::int64_t{threadIdx.x} * size; i < rows; i += 256 * size) {
            const Pack<T> pack = load_pack(column + i);
            ColumnSum<T> sum = 0;
            for (int e = 0; e < size; ++e) sum += to_float(pack.element[e]);
            total += static_cast<double>(sum);
        }
    } else {
        for (std::int64_t i = threadIdx.x; i < rows; i += 256) total += static_cast<double>(to_float(column[i]));
    }
    for (int offset = warp_size / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
    if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = total;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < 256 / warp_size; ++warp) total += shared[warp];
    const std::int64_t at = blockIdx.x * outputs.strides[0];
    if (outputs.is_narrow)
        put<bf16>(outputs.to[0], at, total, outputs.accumulate);
    else
        put<float>(outputs.to[0], at, total, outputs.accumulate);
}

template <class T>
class TransposedBiasGradient : public Kernel {
  public:
    explicit TransposedBiasGradient(const KernelRequest& request)
        : rows_(rows_of(request.inputs[0]).count), width_(width_of(request.inputs[0])),
          stride_(request.inputs[0].strides.back()), outputs_(request, 0) {}

    void run(const Launch& l) const override {
        if (width_ == 0) return;
        const T* dy = l.in<T>(0);
        const bool packs = rows_ % Pack<T>::size == 0 && stride_ % Pack<T>::size == 0 && aligned({dy});
        ColumnOutputs outputs = outputs_;
        outputs.to[0] = l.outputs[0];
        sum_columns<T><<<static_cast<unsigned>(width_), 256, 0, stream_of(l)>>>(dy, rows_, stride_, packs, outputs);
        launched("bias_gradient");
    }

  private:
    std::int64_t rows_, width_, stride_;
    ColumnOutputs outputs_;
};

} // namespace

template <class Sum>
void launch_finish_columns(const Sum* partial, std::int64_t count, std::int64_t width, const ColumnOutputs& outputs,
                           cudaStream_t stream) {
    const dim3 blocks(static_cast<unsigned>(divide_up(width, finish_columns)), static_cast<unsigned>(outputs.sums));
    finish<<<blocks, dim3(finish_columns, finish_lines), 0, stream>>>(partial, count, width, outputs);
    launched("sums over rows");
}
template void launch_finish_columns(const float*, std::int64_t, std::int64_t, const ColumnOutputs&, cudaStream_t);
template void launch_finish_columns(const double*, std::int64_t, std::int64_t, const ColumnOutputs&, cudaStream_t);

std::unique_ptr<Kernel> make_norm_weight_gradient(const KernelRequest& request, const Gpu& gpu) {
    return for_floating(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        if (is_centred(request)) return std::make_unique<ColumnSums<T, Summed::layer_norm>>(request, gpu);
        return std::make_unique<ColumnSums<T, Summed::rms_norm>>(request, gpu);
    });
}

void add_column_kernels(KernelTable& table, const Gpu& gpu) {
    table.add("bias_gradient", PrepareKernel([gpu](const KernelRequest& request) {
                  const Operand& dy = request.inputs[0];
                  const bool by_rows = has_unit_rows(dy.type.shape, dy.strides);
                  return for_floating(request, dy.type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
                      if (by_rows) return std::make_unique<ColumnSums<T, Summed::bias>>(request, gpu);
                      return std::make_unique<TransposedBiasGradient<T>>(request);
                  });
              }));
    for (const char* name : {"layer_norm_weight_gradient", "rms_norm_weight_gradient"})
        table.add(name, PrepareKernel(
                            [gpu](const KernelRequest& request) { return make_norm_weight_gradient(request, gpu); }));
}

} // namespace tutti::backend::cuda

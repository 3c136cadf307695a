// What a step does beyond the model: the global gradient norm. (AdamW has a file of its own.)
#include "backend/cuda/kernels.h"
#include "backend/cuda/step.h"

#include <algorithm>

namespace tutti::backend::cuda {
namespace {

__device__ double warp_sum_double(double x) {
    for (int offset = warp_size / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

// The sum over a block of up to 32 warps, for its first thread.
__device__ double block_sum(double value) {
    __shared__ double shared[warp_size];
    value = warp_sum_double(value);
    const unsigned warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    if (warp > 0) return 0;
    return warp_sum_double(lane < blockDim.x / warp_size ? shared[lane] : 0);
}

// ---- squared_norm

constexpr int threads = 512;
constexpr int packs_of_thread = 4; // in flight
constexpr std::int64_t most_blocks = 1024;

// Each block takes every gridDim-th stretch of packs; what is left over, or all where x is not aligned, element by
// element.
template <class T>
__global__ void __launch_bounds__(threads)
    square_blocks(const T* __restrict__ x, std::int64_t packs, std::int64_t count, double* __restrict__ partial) {
    constexpr int size = Pack<T>::size;
    double sum = 0;
    auto add = [&](T value) {
        const auto wide = static_cast<double>(to_float(value));
        sum += wide * wide;
    };
    constexpr std::int64_t stretch = threads * packs_of_thread;
    for (std::int64_t begin = blockIdx.x * stretch; begin < packs; begin += gridDim.x * stretch) {
        Pack<T> pack[packs_of_thread];
#pragma unroll
        for (int k = 0; k < packs_of_thread; ++k) {
            const std::int64_t p = begin + k * threads + threadIdx.x;
            pack[k] = p < packs ? load_pack(x + p * size) : Pack<T>{};
        }
#pragma unroll
        for (int k = 0; k < packs_of_thread; ++k)
#pragma unroll
            for (int e = 0; e < size; ++e) add(pack[k].element[e]);
    }
    const std::int64_t step = std::int64_t{gridDim.x} * threads;
    for (std::int64_t i = packs * size + std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count; i += step)
        add(x[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(most_blocks)
    join_squares(const double* __restrict__ partial, int blocks, double* __restrict__ out) {
    const double sum = block_sum(static_cast<int>(threadIdx.x) < blocks ? partial[threadIdx.x] : 0);
    if (threadIdx.x == 0) *out = sum;
}

template <class T>
class SquaredNorm : public Kernel {
  public:
    explicit SquaredNorm(const KernelRequest& request)
        : count_(request.inputs[0].elements()),
          blocks_(
              std::clamp<std::int64_t>(divide_up(count_, threads * packs_of_thread * Pack<T>::size), 1, most_blocks)) {}
    Bytes workspace() const override { return {blocks_ * static_cast<std::int64_t>(sizeof(double))}; }
    void run(const Launch& launch) const override {
        const T* x = launch.in<T>(0);
        auto* partial = reinterpret_cast<double*>(launch.workspace);
        const bool aligned = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
        square_blocks<<<static_cast<unsigned>(blocks_), threads, 0, stream_of(launch)>>>(
            x, aligned ? count_ / Pack<T>::size : 0, count_, partial);
        launched("squared_norm");
        join_squares<<<1, most_blocks, 0, stream_of(launch)>>>(partial, static_cast<int>(blocks_),
                                                               launch.out<double>(0));
        launched("squared_norm");
    }

  private:
    std::int64_t count_, blocks_;
};

// ---- sum_step, finish_norm

template <class Loss>
__global__ void sum_step_kernel(const double* squares, std::int64_t chunks, const Loss* loss, double* sums,
                                const StepScalars* scalars) {
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < chunks; i += warp_size) sum += squares[i];
    sum = warp_sum_double(sum);
    if (threadIdx.x > 0) return;
    sums[0] = sum;
    sums[1] = loss ? static_cast<double>(*loss) : 0;
    sums[2] = scalars->stop;
}

void sum_step(const KernelRequest& request, const Launch& launch) {
    const std::int64_t squares = request.attributes.integer("squares");
    const std::size_t at = squares > 0 ? 1 : 0;
    const bool has_loss = request.attributes.flag("loss");
    auto run = [&]<class Loss>() {
        sum_step_kernel<Loss><<<1, warp_size, 0, stream_of(launch)>>>(squares > 0 ? launch.in<double>(0) : nullptr,
                                                                      squares, has_loss ? launch.in<Loss>(at) : nullptr,
                                                                      launch.out<double>(0), launch.scalars);
        launched("sum_step");
    };
    if (has_loss && request.inputs[at].type.dtype == DType::float64) return run.operator()<double>();
    run.operator()<float>();
}

__global__ void finish_norm_kernel(const double* sums, double* out, StepScalars* scalars) {
    StepScalars& s = *scalars;
    const double norm = sqrt(sums[0]) / s.loss_scale, mean = sums[1] * s.inverse_tokens;
    s.gradient_norm = norm;
    s.loss = mean;
    s.stop = sums[2];
    s.finite = isfinite(norm) && isfinite(mean);
    s.clip_factor = s.max_norm > 0 ? fmin(1.0, s.max_norm / (norm + 1e-6)) : 1;
    *out = norm;
}

void finish_norm(const KernelRequest&, const Launch& launch) {
    finish_norm_kernel<<<1, 1, 0, stream_of(launch)>>>(launch.in<double>(0), launch.out<double>(0), launch.scalars);
    launched("finish_norm");
}

} // namespace

void add_step_kernels(KernelTable& table) {
    add_floating<SquaredNorm>(table, "squared_norm");
    table.add("sum_step", KernelFunction(sum_step));
    table.add("finish_norm", KernelFunction(finish_norm));
    add_adamw_kernel(table);
}

} // namespace tutti::backend::cuda

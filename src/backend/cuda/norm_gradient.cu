// The whole gradient of a norm in one pass over dy and x: that of the rows, and the sums over rows that are the
// gradients of scale and shift.
//
// Few blocks go through all rows. A thread always has the same columns, so it keeps their sums in registers; at the end
// a block's groups are added in shared memory, and the blocks by launch_finish_columns. While a group works on a row,
// the next one is on its way into shared memory. Rows too long for that, not at multiples of 16 bytes or spaced in more
// ways than two take the two kernels of norm.cu and columns.cu.
#include "backend/cuda/columns.h"
#include "backend/cuda/norm.h"
#include "backend/cuda/rows.h"

#include <cuda_pipeline.h>

namespace tutti::backend::cuda {
namespace {

constexpr int most_threads = 256;
constexpr int stages = 2, operands = 3; // rows of dy, x, residual in shared memory

// Where rows begin: evenly spaced, or so in groups of neighbours, as the heads of a position are.
struct Spacing {
    std::int64_t within = 0, across = 0; // from row to row of a group, from group to group
    unsigned group = 1;                  // rows in one
    bool fits = true;

    Spacing() = default;
    Spacing(const Strided& rows, std::int64_t pack) {
        fits = rows.rank <= 2 && rows.count < (std::int64_t{1} << 31) && rows_fit(rows, pack);
        if (!fits) return;
        across = rows.rank > 0 ? rows.strides[0] : 0;
        if (rows.rank == 2) within = rows.strides[1], group = static_cast<unsigned>(rows.sizes[1]);
    }
    __device__ std::int64_t at(std::int64_t row) const {
        if (group == 1) return row * across;
        const unsigned number = static_cast<unsigned>(row), of = number / group;
        return of * across + (number - of * group) * within;
    }
};

template <class T>
struct WholeGradient {
    const T *dy, *x, *scale, *residual;
    const float *mean, *rstd;
    T* dx;
    ColumnSum<T>* partial; // [blocks, sums, width]
    Spacing dy_rows, x_rows, residual_rows, dx_rows;
    std::int64_t mean_stride, rstd_stride; // from row to row
    std::int64_t rows;
    int width;
    float offset;
};

template <class T, int packs, bool centred>
__global__ __launch_bounds__(most_threads) void differentiate_whole(WholeGradient<T> a) {
    using Share = RowShare<T, packs>;
    using Sum = ColumnSum<T>;
    constexpr int size = Share::size, sums = centred ? 2 : 1;
    __shared__ float2 shared[GroupSum::places];
    extern __shared__ float4 staged_bytes[];
    GroupSum group_sum(shared);
    const Share share{a.width};
    float scale[packs][size] = {};
    share.each([&](int part, int first) {
        const auto values = load_elements<size>(a.scale + first);
        for (int e = 0; e < size; ++e) scale[part][e] = a.offset + to_float(values.element[e]);
    });
    Sum dscale[packs][size] = {}, dshift[packs][size] = {};

    // [stages, operands, packs, threads]: everybody reads only what it fetched itself.
    auto staged = [&](int stage, int operand, int part) -> typename Share::Part& {
        const unsigned threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
        return reinterpret_cast<typename Share::Part*>(
            staged_bytes)[static_cast<unsigned>((stage * operands + operand) * packs + part) * threads + thread];
    };
    // Begins to fetch a row, if there is one; gives its mean and rstd.
    auto fetch = [&](std::int64_t row, int stage) {
        float2 statistics = {0, 0};
        if (row < a.rows) {
            share.each([&](int part, int first) {
                constexpr std::size_t bytes = sizeof(typename Share::Part);
                __pipeline_memcpy_async(&staged(stage, 0, part), a.dy + a.dy_rows.at(row) + first, bytes);
                __pipeline_memcpy_async(&staged(stage, 1, part), a.x + a.x_rows.at(row) + first, bytes);
                if (a.residual)
                    __pipeline_memcpy_async(&staged(stage, 2, part), a.residual + a.residual_rows.at(row) + first,
                                            bytes);
            });
            statistics = {centred ? a.mean[row * a.mean_stride] : 0, a.rstd[row * a.rstd_stride]};
        }
        __pipeline_commit();
        return statistics;
    };

    const std::int64_t step = std::int64_t{gridDim.x} * blockDim.y;
    std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
    int stage = 0;
    float2 statistics = fetch(row, stage);
    for (; row < a.rows; row += step, stage ^= 1) {
        const auto [mean, rstd] = statistics;
        statistics = fetch(row + step, stage ^ 1);
        __pipeline_wait_prior(1);
        float2 row_sums = {0, 0};
        share.each([&](int part, int) {
            const auto dy = staged(stage, 0, part), x = staged(stage, 1, part);
            for (int e = 0; e < size; ++e) {
                const float gradient = to_float(dy.element[e]);
                const Sum product = gradient * (Sum{to_float(x.element[e])} - mean);
                dscale[part][e] += product * rstd;
                if constexpr (centred) dshift[part][e] += gradient;
                row_sums = {row_sums.x + gradient * scale[part][e],
                            row_sums.y + static_cast<float>(product) * scale[part][e]};
            }
        });
        if constexpr (centred)
            row_sums = group_sum(row_sums);
        else
            row_sums.y = group_sum(row_sums.y);
        const float shift = centred ? row_sums.x / static_cast<float>(a.width) : 0;
        const float projection = row_sums.y * rstd * rstd / static_cast<float>(a.width); // of x - mean
        asm volatile("" ::: "memory"); // dy and x are read again: no registers for them
        T* dx = a.dx + a.dx_rows.at(row);
        share.each([&](int part, int first) {
            const auto dy = staged(stage, 0, part), x = staged(stage, 1, part);
            typename Share::Part residual = {}, result;
            if (a.residual) residual = staged(stage, 2, part);
            for (int e = 0; e < size; ++e) {
                const float g = to_float(dy.element[e]) * scale[part][e];
                const float along = (to_float(x.element[e]) - mean) * projection;
                result.element[e] = from_float<T>(rstd * (g - shift - along) + to_float(residual.element[e]));
            }
            store_elements(dx + first, result);
        });
    }

    auto write = [&](const Sum(&sum)[packs][size], int s) {
        Sum* to = a.partial + (std::int64_t{blockIdx.x} * sums + s) * a.width;
        if (blockDim.y == 1) {
            share.each([&](int part, int first) {
                for (int e = 0; e < size; ++e) to[first + e] = sum[part][e];
            });
            return;
        }
        auto* columns = reinterpret_cast<Sum*>(staged_bytes); // [groups, width]: less than the rows took
        __syncthreads();
        share.each([&](int part, int first) {
            for (int e = 0; e < size; ++e) columns[static_cast<int>(threadIdx.y) * a.width + first + e] = sum[part][e];
        });
        __syncthreads();
        for (int c = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); c < a.width;
             c += static_cast<int>(blockDim.x * blockDim.y)) {
            Sum total = 0;
            for (int group = 0; group < static_cast<int>(blockDim.y); ++group) total += columns[group * a.width + c];
            to[c] = total;
        }
    };
    write(dscale, 0);
    if constexpr (centred) write(dshift, 1);
}

template <class T, bool centred>
class NormGradient : public Kernel {
  public:
    NormGradient(const KernelRequest& request, const Gpu& gpu) : outputs_(request, 1) {
        bool fits = true;
        auto take_rows = [&](const Operand& operand, Spacing& rows) {
            rows = Spacing(rows_of(operand), Pack<T>::size);
            fits = fits && rows.fits;
        };
        auto take_scalars = [&](std::size_t input, std::int64_t& stride) {
            const Strided scalars(request.inputs[input]);
            stride = scalars.strides[0];
            fits = fits && scalars.rank <= 1;
        };
        take_rows(request.inputs[0], a_.dy_rows);
        take_rows(request.inputs[1], a_.x_rows);
        take_rows(request.outputs[0], a_.dx_rows);
        if constexpr (centred) take_scalars(2, a_.mean_stride);
        take_scalars(scale - 1, a_.rstd_stride);
        if (request.inputs.size() > residual) take_rows(request.inputs[residual], a_.residual_rows);
        a_.width = static_cast<int>(width_of(request.inputs[1]));
        a_.rows = rows_of(request.inputs[1]).count;
        a_.offset = scale_offset(request);

        plan_ = plan_rows(a_.width, Pack<T>::size, fits, most_threads);
        if (staging_bytes(plan_) + GroupSum::places * sizeof(float2) > static_cast<std::size_t>(gpu.shared_bytes))
            plan_ = plan_rows(a_.width, Pack<T>::size, false, most_threads);
        for_packs(plan_.packs, [&]<int packs>() {
            if constexpr (packs > 0) {
                const auto kernel = differentiate_whole<T, packs, centred>;
                const int threads = plan_.threads * plan_.groups;
                shared_bytes_ = staging_bytes(plan_);
                check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared_bytes_)),
                      "norm gradient");
                int resident = 1;
                check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes_),
                      "norm gradient");
                blocks_ = std::clamp<std::int64_t>(std::int64_t{resident} * gpu.multiprocessors, 1,
                                                   std::max<std::int64_t>(1, divide_up(a_.rows, plan_.groups)));
            }
        });
        input_ = make_norm_input_gradient(request);
        KernelRequest weights = request;
        weights.outputs.erase(weights.outputs.begin());
        weights_ = make_norm_weight_gradient(weights, gpu);
    }

    Bytes workspace() const override {
        const std::int64_t own = blocks_ * outputs_.sums * a_.width * static_cast<std::int64_t>(sizeof(ColumnSum<T>));
        return {std::max(own, weights_->workspace().count)};
    }

    void run(const Launch& l) const override {
        WholeGradient<T> a = a_;
        a.dy = l.in<T>(0), a.x = l.in<T>(1), a.rstd = l.in<float>(scale - 1), a.scale = l.in<T>(scale);
        if constexpr (centred) a.mean = l.in<float>(2);
        if (l.inputs.size() > residual) a.residual = l.in<T>(residual);
        a.dx = l.out<T>(0), a.partial = reinterpret_cast<ColumnSum<T>*>(l.workspace);
        if (plan_.packs == 0 || !aligned({a.dy, a.x, a.scale, a.residual, a.dx})) return run_apart(l);
        for_packs(plan_.packs, [&]<int packs>() {
            if constexpr (packs > 0)
                differentiate_whole<T, packs, centred>
                    <<<static_cast<unsigned>(blocks_), plan_.block(), shared_bytes_, stream_of(l)>>>(a);
        });
        launched("norm gradient");
        ColumnOutputs outputs = outputs_;
        for (int s = 0; s < outputs.sums; ++s) outputs.to[s] = l.outputs[static_cast<std::size_t>(s) + 1];
        launch_finish_columns(a.partial, blocks_, a.width, outputs, stream_of(l));
    }

  private:
    static std::size_t staging_bytes(const RowPlan& plan) {
        return static_cast<std::size_t>(stages * operands * plan.packs * plan.threads * plan.groups) * sizeof(Pack<T>);
    }
    // The sums last: they may lie where scale and shift do.
    void run_apart(const Launch& l) const {
        input_->run(l);
        Launch weights = l;
        weights.outputs = l.outputs.subspan(1);
        weights_->run(weights);
    }

    static constexpr std::size_t scale = centred ? 4 : 3, residual = scale + 1; // their places among the inputs
    WholeGradient<T> a_{};
    RowPlan plan_;
    std::int64_t blocks_ = 0;
    std::size_t shared_bytes_ = 0;
    ColumnOutputs outputs_;
    std::unique_ptr<Kernel> input_, weights_;
};

} // namespace

void add_norm_gradient_kernels(KernelTable& table, const Gpu& gpu) {
    for (const char* name : {"layer_norm_gradient", "rms_norm_gradient"})
        table.add(name, PrepareKernel([gpu](const KernelRequest& request) {
                      return for_floating(request, request.inputs[1].type.dtype,
                                          [&]<class T>() -> std::unique_ptr<Kernel> {
                                              if (is_centred(request))
                                                  return std::make_unique<NormGradient<T, true>>(request, gpu);
                                              return std::make_unique<NormGradient<T, false>>(request, gpu);
                                          });
                  }));
}

} // namespace tutti::backend::cuda

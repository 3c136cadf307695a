// Reductions over dimensions of a tensor of any strides. Sums are kept in double (bf16's in float, integers' in int64)
// and added in an order that depends on nothing but the sizes. Long reductions of few outputs are cut into parts, whose
// results are joined by a second kernel.
#include "backend/cuda/elementwise.h"
#include "backend/cuda/reduction.h"

#include <limits>

namespace tutti::backend::cuda {
namespace {

enum class Reduce { sum, mean, max };

template <class T>
using Value =
    std::conditional_t<std::is_integral_v<T>, std::int64_t, std::conditional_t<std::is_same_v<T, bf16>, float, double>>;

template <Reduce how, class V>
__device__ V combine(V a, V b) {
    if constexpr (how == Reduce::max)
        return a >= b || a != a ? a : b; // NaN wins
    else
        return a + b;
}

// What is reduced, and where it goes. A plain value that kernels take as a parameter.
template <class V>
struct Task {
    Strided kept, reduced; // of the input
    Strided out;
    std::int64_t parts, part; // number, and elements of each but the last
    V start;                  // what an empty reduction gives
    V divisor;                // of the result: the count for a mean, else 1

    __device__ std::int64_t begin(std::int64_t p) const { return p * part; }
    __device__ std::int64_t end(std::int64_t p) const { return min(reduced.count, (p + 1) * part); }
};

// The result of a part goes to the workspace, [parts, outputs]; of the only part to the output.
template <Reduce how, class T>
__device__ void finish(const Task<Value<T>>& task, std::int64_t output, std::int64_t part, Value<T> value, T* y,
                       Value<T>* partial) {
    if (task.parts > 1)
        partial[part * task.kept.count + output] = value;
    else
        y[task.out.at(output)] = stored<T>(how == Reduce::mean ? value / task.divisor : value);
}

template <Reduce how, class V>
__device__ V warp_combine(V value) {
    for (int offset = warp_size / 2; offset > 0; offset /= 2)
        value = combine<how>(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

// Calls visit with the place of the reduced elements begin, begin + step, ... that lie before the end. Those on one
// line are the usual case; then several are loaded before the first is used.
template <class V, class Visit>
__device__ void for_each_reduced(const Task<V>& task, std::int64_t begin, std::int64_t end, int step, Visit visit) {
    if (task.reduced.rank <= 1) {
        const std::int64_t stride = task.reduced.rank == 0 ? 0 : task.reduced.strides[0];
#pragma unroll 8
        for (std::int64_t r = begin; r < end; r += step) visit(r * stride);
    } else {
        for (std::int64_t r = begin; r < end; r += step) visit(task.reduced.at(r));
    }
}

constexpr int threads = 256;

// A warp for each output and part: for reduced elements that are neighbours in memory.
template <Reduce how, class T>
__global__ void __launch_bounds__(threads)
    reduce_rows(Task<Value<T>> task, const T* __restrict__ x, T* __restrict__ y, Value<T>* __restrict__ partial) {
    const std::int64_t warp = (std::int64_t{blockIdx.x} * threads + threadIdx.x) / warp_size;
    const int lane = threadIdx.x % warp_size;
    if (warp >= task.kept.count * task.parts) return;
    const std::int64_t output = warp / task.parts, part = warp % task.parts;
    const T* row = x + task.kept.at(output);
    Value<T> value = task.start;
    for_each_reduced(task, task.begin(part) + lane, task.end(part), warp_size,
                     [&](std::int64_t at) { value = combine<how>(value, static_cast<Value<T>>(value_of(row[at]))); });
    value = warp_combine<how>(value);
    if (lane == 0) finish<how>(task, output, part, value, y, partial);
}

// A thread for `size` neighbouring outputs and each part: for outputs that are neighbours in memory.
template <Reduce how, int size, class T>
__global__ void __launch_bounds__(threads)
    reduce_columns(Task<Value<T>> task, const T* __restrict__ x, T* __restrict__ y, Value<T>* __restrict__ partial) {
    const std::int64_t output = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * size;
    const std::int64_t part = blockIdx.y;
    if (output >= task.kept.count) return;
    const T* column = x + task.kept.at(output);
    Value<T> values[size];
    for (int i = 0; i < size; ++i) values[i] = task.start;
    for_each_reduced(task, task.begin(part), task.end(part), 1, [&](std::int64_t at) {
        const auto group = load_group<T, size>(column + at, false);
#pragma unroll
        for (int i = 0; i < size; ++i)
            values[i] = combine<how>(values[i], static_cast<Value<T>>(value_of(group.element[i])));
    });
#pragma unroll
    for (int i = 0; i < size; ++i) finish<how>(task, output + i, part, values[i], y, partial);
}

// A warp for each output joins its parts.
template <Reduce how, class T>
__global__ void __launch_bounds__(threads)
    reduce_parts(Task<Value<T>> task, const Value<T>* __restrict__ partial, T* __restrict__ y) {
    const std::int64_t output = (std::int64_t{blockIdx.x} * threads + threadIdx.x) / warp_size;
    const int lane = threadIdx.x % warp_size;
    if (output >= task.kept.count) return;
    Value<T> value = task.start;
    for (std::int64_t p = lane; p < task.parts; p += warp_size)
        value = combine<how>(value, partial[p * task.kept.count + output]);
    value = warp_combine<how>(value);
    if (lane == 0) y[task.out.at(output)] = stored<T>(how == Reduce::mean ? value / task.divisor : value);
}

template <Reduce how, class T>
class Reduction : public Kernel {
  public:
    explicit Reduction(const KernelRequest& request) : op_(request.op) {
        const Operand& x = request.inputs[0];
        const int rank = x.type.shape.rank();
        std::vector<bool> gone(static_cast<std::size_t>(rank), false);
        for (std::int64_t dim : request.attributes.integers("dims"))
            gone[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)] = true;
        Operand kept, reduced;
        for (int d = 0; d < rank; ++d) {
            Operand& side = gone[static_cast<std::size_t>(d)] ? reduced : kept;
            side.type.shape.push_back(x.type.shape[d]);
            side.strides.push_back(x.strides[d]);
        }
        task_ = {Strided(kept), Strided(reduced), Strided(request.outputs[0]), 1, 0, start(), 1};
        task_.divisor = static_cast<Value<T>>(task_.reduced.count);
        by_columns_ = inner_stride(task_.kept) == 1 && inner_stride(task_.reduced) != 1;
        whole_groups_ = by_columns_ && groups(task_.kept, true) && groups(task_.reduced, false);
        split();
    }

    Bytes workspace() const override {
        if (task_.parts == 1) return {};
        return {task_.parts * task_.kept.count * static_cast<std::int64_t>(sizeof(Value<T>))};
    }

    void run(const Launch& launch) const override {
        const T* x = launch.in<T>(0);
        T* y = launch.out<T>(0);
        auto* partial = reinterpret_cast<Value<T>*>(launch.workspace);
        const cudaStream_t stream = stream_of(launch);
        const std::int64_t outputs = task_.kept.count;
        if (!by_columns_) {
            reduce_rows<how>
                <<<blocks(outputs * task_.parts, threads / warp_size), threads, 0, stream>>>(task_, x, y, partial);
        } else if (whole_groups_ && reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
            const dim3 grid(blocks(outputs, threads * size), static_cast<unsigned>(task_.parts));
            reduce_columns<how, size><<<grid, threads, 0, stream>>>(task_, x, y, partial);
        } else {
            const dim3 grid(blocks(outputs, threads), static_cast<unsigned>(task_.parts));
            reduce_columns<how, 1><<<grid, threads, 0, stream>>>(task_, x, y, partial);
        }
        launched(op_.c_str());
        if (task_.parts == 1) return;
        reduce_parts<how, T><<<blocks(outputs, threads / warp_size), threads, 0, stream>>>(task_, partial, y);
        launched(op_.c_str());
    }

  private:
    static constexpr int size = Pack<T>::size;

    static Value<T> start() {
        if constexpr (how != Reduce::max)
            return 0;
        else if constexpr (std::is_integral_v<T>)
            return std::numeric_limits<T>::min();
        else
            return -std::numeric_limits<Value<T>>::infinity();
    }
    static std::int64_t inner_stride(const Strided& s) { return s.rank == 0 ? 0 : s.strides[s.rank - 1]; }
    // Whether groups of neighbours start at multiples of their size.
    static bool groups(const Strided& s, bool along) {
        for (int d = 0; d < (along ? s.rank - 1 : s.rank); ++d)
            if (s.strides[d] % size != 0) return false;
        return !along || s.sizes[s.rank - 1] % size == 0;
    }
    static unsigned blocks(std::int64_t count, std::int64_t each) {
        return static_cast<unsigned>(divide_up(count, each));
    }
    // As many parts as it takes to keep a large GPU busy, none too short.
    void split() {
        constexpr std::int64_t wanted = 1 << 17; // threads
        const std::int64_t each = by_columns_ ? 1 : warp_size, least = by_columns_ ? 16 : 1024;
        const std::int64_t busy = divide_up(task_.kept.count * each, by_columns_ && whole_groups_ ? size : 1);
        const std::int64_t most = std::min<std::int64_t>(1024, divide_up(task_.reduced.count, least));
        task_.part = divide_up(task_.reduced.count, std::clamp<std::int64_t>(wanted / busy, 1, most));
        task_.parts = divide_up(task_.reduced.count, task_.part);
    }

    std::string op_;
    Task<Value<T>> task_;
    bool by_columns_, whole_groups_;
};

template <Reduce how>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
    return for_number(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<Reduction<how, T>>(request);
    });
}

} // namespace

void add_reduction_kernels(KernelTable& table) {
    table.add("reduce_sum", PrepareKernel(prepare<Reduce::sum>));
    table.add("reduce_mean", PrepareKernel(prepare<Reduce::mean>));
    table.add("reduce_max", PrepareKernel(prepare<Reduce::max>));
    add_row_kernels(table);
}

} // namespace tutti::backend::cuda

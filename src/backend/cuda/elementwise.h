// Elementwise work on operands of any strides. All operands are walked together, in the order in which the output lies
// in memory; where they allow it, each thread takes a group of neighbours of up to sixteen bytes.
#pragma once

#include "backend/cuda/kernels.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

namespace tutti::backend::cuda {

// What kernels of one or two operands do with them.
struct Same {
    template <class V>
    __device__ V operator()(V x) const {
        return x;
    }
};
struct Sum {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a + b;
    }
};

// How several operands of one shape are walked together: operand 0 decides the order. Neighbouring dimensions are
// joined where all operands allow it. A plain value that kernels take as a parameter.
template <int operands>
struct Walk {
    static constexpr int max_rank = Shape::max_rank;
    int rank = 0;
    bool narrow = true;     // numbers fit 32 bits, in which division is cheap
    std::int64_t count = 1; // of elements, or of groups once it is grouped
    std::int64_t sizes[max_rank] = {};
    std::int64_t strides[operands][max_rank] = {};
    bool repeats[operands] = {}; // one element serves a whole group

    Walk() = default;
    // Strides of every operand at the shape.
    Walk(const Shape& shape, std::span<const Shape> all) {
        std::vector<int> order(static_cast<std::size_t>(shape.rank()));
        std::iota(order.begin(), order.end(), 0);
        if (!is_dense(shape, all[0]))
            std::ranges::stable_sort(order, [&](int a, int b) { return all[0][a] > all[0][b]; });
        for (int d : order) add(shape[d], d, all);
        narrow = count < (std::int64_t{1} << 31);
    }

    // The same with `size` elements at a time; false where that is not possible. Where all lie on one line, what is
    // left over is not part of it.
    bool group(int size) {
        if (rank == 0 || count < size) return false;
        const int last = rank - 1;
        if (rank > 1 && sizes[last] % size != 0) return false;
        for (int o = 0; o < operands; ++o) {
            repeats[o] = strides[o][last] == 0;
            if (repeats[o]) continue;
            if (strides[o][last] != 1) return false;
            for (int d = 0; d < last; ++d)
                if (strides[o][d] % size != 0) return false;
        }
        if (repeats[0]) return false;
        sizes[last] /= size;
        for (int o = 0; o < operands; ++o) strides[o][last] *= size;
        count /= size;
        return true;
    }

    // Where element (or group) i of every operand lies.
    __device__ void locate(std::int64_t i, std::int64_t (&at)[operands]) const {
        for (int o = 0; o < operands; ++o) at[o] = 0;
        for (int d = rank - 1; d > 0; --d) {
            std::int64_t here, above;
            if (narrow) {
                const auto n = static_cast<std::uint32_t>(i), size = static_cast<std::uint32_t>(sizes[d]);
                above = n / size;
                here = n % size;
            } else {
                above = i / sizes[d];
                here = i % sizes[d];
            }
            for (int o = 0; o < operands; ++o) at[o] += here * strides[o][d];
            i = above;
        }
        if (rank > 0)
            for (int o = 0; o < operands; ++o) at[o] += i * strides[o][0];
    }

  private:
    void add(std::int64_t size, int dim, std::span<const Shape> all) {
        count *= size;
        if (size == 1) return;
        bool joins = rank > 0;
        for (int o = 0; o < operands; ++o)
            joins = joins && strides[o][rank - 1] == all[static_cast<std::size_t>(o)][dim] * size;
        if (!joins) ++rank;
        sizes[rank - 1] = joins ? sizes[rank - 1] * size : size;
        for (int o = 0; o < operands; ++o) strides[o][rank - 1] = all[static_cast<std::size_t>(o)][dim];
    }
};

// Strides of an operand seen at the shape it is broadcast to: 0 where it is repeated.
inline Shape broadcast_strides(const Operand& operand, const Shape& to) {
    const Shape& shape = operand.type.shape;
    Shape result = to;
    const int added = to.rank() - shape.rank();
    for (int d = 0; d < to.rank(); ++d)
        result[d] = d < added || (shape[d - added] == 1 && to[d] != 1) ? 0 : operand.strides[d - added];
    return result;
}

// ---- Elements as they are stored and as they are computed with

struct Boolean {
    std::uint8_t value;
};
__device__ inline float value_of(float x) { return x; }
__device__ inline float value_of(bf16 x) { return __bfloat162float(x); }
__device__ inline bool value_of(Boolean x) { return x.value != 0; }
template <class T>
requires std::is_integral_v<T> __device__ T value_of(T x) { return x; }
template <class T, class Value>
__device__ T stored(Value value) {
    if constexpr (std::is_same_v<T, bf16>)
        return __float2bfloat16_rn(static_cast<float>(value));
    else if constexpr (std::is_same_v<T, Boolean>)
        return {static_cast<std::uint8_t>(value != 0)};
    else
        return static_cast<T>(value);
}

template <class T, int size>
struct alignas(sizeof(T) * size) Group {
    T element[size];
};
template <class T, int size>
__device__ Group<T, size> load_group(const T* from, bool repeats) {
    if constexpr (size == 1) {
        return {*from};
    } else {
        if (!repeats) return *reinterpret_cast<const Group<T, size>*>(from);
        Group<T, size> group;
        const T element = *from;
        for (int i = 0; i < size; ++i) group.element[i] = element;
        return group;
    }
}

// ---- out = function(in...)

// No operand is declared free of aliases: the output may be one of the inputs. `at` is of the output, then of the
// inputs.
template <int size, class Function, class Out, class... In, std::size_t... i>
__device__ void apply(const Function& function, const Walk<1 + sizeof...(In)>& walk,
                      const std::int64_t (&at)[1 + sizeof...(In)], std::index_sequence<i...>, Out* out,
                      const In*... in) {
    const auto compute = [&](const auto&... groups) {
        Group<Out, size> result;
#pragma unroll
        for (int e = 0; e < size; ++e) result.element[e] = stored<Out>(function(value_of(groups.element[e])...));
        *reinterpret_cast<Group<Out, size>*>(out + at[0]) = result;
    };
    compute(load_group<In, size>(in + at[i + 1], walk.repeats[i + 1])...);
}

constexpr int element_threads = 256;

template <int size, class Function, class Out, class... In>
__global__ void __launch_bounds__(element_threads)
    element_kernel(Function function, Walk<1 + sizeof...(In)> walk, std::int64_t first, Out* out, const In*... in) {
    const std::int64_t i = first + std::int64_t{blockIdx.x} * element_threads + threadIdx.x;
    if (i >= walk.count) return;
    std::int64_t at[1 + sizeof...(In)];
    walk.locate(i, at);
    apply<size>(function, walk, at, std::index_sequence_for<In...>{}, out, in...);
}

// A function prepared for operands of certain strides.
template <class Function, class Out, class... In>
class Elementwise {
  public:
    static constexpr int operands = 1 + sizeof...(In);
    static constexpr int size = 16 / static_cast<int>(std::max({sizeof(Out), sizeof(In)...}));

    Elementwise(const Operand& out, std::span<const Operand> in, Function function = {}) : function_(function) {
        std::vector<Shape> strides = {out.strides};
        for (const Operand& operand : in) strides.push_back(broadcast_strides(operand, out.type.shape));
        one_by_one_ = {out.type.shape, strides};
        groups_ = one_by_one_;
        grouped_ = groups_.group(size);
    }

    void run(const char* op, cudaStream_t stream, Out* out, const In*... in) const {
        std::int64_t done = 0;
        if (grouped_ && aligned(out, in...)) {
            launch<size>(op, stream, groups_, 0, out, in...);
            done = groups_.count * size;
        }
        launch<1>(op, stream, one_by_one_, done, out, in...);
    }

  private:
    template <class T>
    static bool fits(const T* pointer) {
        return reinterpret_cast<std::uintptr_t>(pointer) % (sizeof(T) * size) == 0;
    }
    bool aligned(const Out* out, const In*... in) const {
        [[maybe_unused]] int operand = 0;
        return fits(out) && ((++operand, groups_.repeats[operand] || fits(in)) && ...);
    }
    template <int each>
    void launch(const char* op, cudaStream_t stream, const Walk<operands>& walk, std::int64_t first, Out* out,
                const In*... in) const {
        if (first >= walk.count) return;
        const auto blocks = static_cast<unsigned>(divide_up(walk.count - first, element_threads));
        element_kernel<each><<<blocks, element_threads, 0, stream>>>(function_, walk, first, out, in...);
        launched(op);
    }

    Function function_;
    Walk<operands> one_by_one_, groups_;
    bool grouped_;
};

// The kernel of an elementwise operator. `updates`: the output's old elements come first among the function's inputs.
template <class Function, class Out, class... In>
class ElementKernel : public Kernel {
  public:
    explicit ElementKernel(const KernelRequest& request, Function function = {}, bool updates = false)
        : op_(request.op), work_(request.outputs[0], operands(request, updates), function), updates_(updates) {}
    void run(const Launch& launch) const override { run(launch, std::index_sequence_for<In...>{}); }

  private:
    static std::vector<Operand> operands(const KernelRequest& request, bool updates) {
        std::vector<Operand> all = request.inputs;
        if (updates) all.insert(all.begin(), request.outputs[0]);
        return all;
    }
    const std::byte* input(const Launch& launch, std::size_t i) const {
        if (!updates_) return launch.inputs[i];
        return i == 0 ? launch.outputs[0] : launch.inputs[i - 1];
    }
    template <std::size_t... i>
    void run(const Launch& launch, std::index_sequence<i...>) const {
        work_.run(op_.c_str(), stream_of(launch), launch.out<Out>(0), reinterpret_cast<const In*>(input(launch, i))...);
    }

    std::string op_;
    Elementwise<Function, Out, In...> work_;
    bool updates_;
};

// Calls make.template operator()<T>() with the device type of a number.
template <class Make>
std::unique_ptr<Kernel> for_number(const KernelRequest& request, DType dtype, Make make) {
    switch (dtype) {
    case DType::float32: return make.template operator()<float>();
    case DType::bfloat16: return make.template operator()<bf16>();
    case DType::int64: return make.template operator()<std::int64_t>();
    case DType::int32: return make.template operator()<std::int32_t>();
    default: fail_unsupported(backend_name, request);
    }
}

// The same with an unsigned type of an element's size: for work that only moves elements.
template <class Make>
std::unique_ptr<Kernel> for_size(DType dtype, Make make) {
    switch (size_of(dtype)) {
    case 1: return make.template operator()<std::uint8_t>();
    case 2: return make.template operator()<std::uint16_t>();
    case 4: return make.template operator()<std::uint32_t>();
    default: return make.template operator()<std::uint64_t>();
    }
}

// elements.cu registers its own and these.
void add_binary_kernels(KernelTable&); // binary.cu: of two tensors, and where
void add_cast_kernels(KernelTable&);   // cast.cu: cast, accumulate

} // namespace tutti::backend::cuda

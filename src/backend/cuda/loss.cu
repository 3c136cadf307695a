// Cross-entropy over rows of v logits: loss = sum over the rows that count of lse - logit[target]. A block takes a row;
// maximum and sum of exponentials are found together in one pass, a thread's sum being scaled down where its maximum
// grows.
#include "backend/cuda/loss.h"
#include "backend/cuda/rows.h"

#include <type_traits>

namespace tutti::backend::cuda {
namespace {

constexpr int most_threads = 1024;
constexpr float infinity = __builtin_inff();

template <class T>
struct Logits {
    T* logits;
    const std::int64_t* targets;
    std::int64_t rows, classes, stride, ignore_index;
    std::int64_t first_class = 0, all_classes = classes; // where these are only some of the classes
};

__device__ float value_of(const LossSeed& seed) {
    return seed.dtype == DType::bfloat16 ? to_float(*reinterpret_cast<const bf16*>(seed.value))
                                         : *reinterpret_cast<const float*>(seed.value);
}

template <class T>
__device__ float exponential(float x) {
    if constexpr (std::is_same_v<T, bf16>)
        return __expf(x);
    else
        return expf(x);
}

// A row may begin anywhere: single elements up to the first multiple of 16 bytes, packs, single elements at the end.
struct RowParts {
    std::int64_t head, packs, tail; // how many; where the tail begins

    template <class T>
    __device__ RowParts(const T* row, std::int64_t count) {
        constexpr int size = Pack<T>::size;
        const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
        head = min(count, (size - past) % size);
        packs = (count - head) / size;
        tail = head + packs * size;
    }
};

// The sum of exp(x - most) over what was seen.
struct ExponentialSum {
    float most = -infinity, sum = 0;

    // What exponents are taken from: where nothing but -inf was seen, zero.
    __device__ static float base(float most) { return most == -infinity ? 0.0f : most; }

    template <class T, int size>
    __device__ void add(const Elements<T, size>& x) {
        float largest = most;
        for (int e = 0; e < size; ++e) largest = fmaxf(largest, to_float(x.element[e]));
        const float from = base(largest);
        if (largest > most) sum *= exponential<T>(most - from);
        most = largest;
        for (int e = 0; e < size; ++e) sum += exponential<T>(to_float(x.element[e]) - from);
    }
    __device__ void merge(float other_most, float other_sum) {
        const float largest = fmaxf(most, other_most), from = base(largest);
        sum = sum * expf(most - from) + other_sum * expf(other_most - from);
        most = largest;
    }
    // Over all threads of the block; every thread gets the same.
    __device__ void merge_block() {
        __shared__ float2 shared[most_threads / warp_size];
        for (int offset = warp_size / 2; offset > 0; offset /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, most, offset);
            merge(other, __shfl_xor_sync(0xffffffffu, sum, offset));
        }
        if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = {most, sum};
        __syncthreads();
        most = shared[0].x, sum = shared[0].y;
        for (unsigned warp = 1; warp < blockDim.x / warp_size; ++warp) merge(shared[warp].x, shared[warp].y);
    }
};

// Goes through a row once; the first `room` packs are put into `kept`.
template <class T>
__device__ ExponentialSum sum_exponentials(const T* row, const RowParts& parts, std::int64_t count,
                                           Pack<T>* kept = nullptr, std::int64_t room = 0) {
    ExponentialSum sum;
    for (std::int64_t i = threadIdx.x; i < parts.head; i += blockDim.x) sum.add(load_elements<1>(row + i));
    constexpr int in_flight = 4;
    for (std::int64_t first = threadIdx.x; first < parts.packs; first += in_flight * blockDim.x) {
        Elements<T, Pack<T>::size> packs[in_flight];
#pragma unroll
        for (int k = 0; k < in_flight; ++k)
            if (first + k * blockDim.x < parts.packs)
                packs[k] = load_elements<Pack<T>::size>(row + parts.head + (first + k * blockDim.x) * Pack<T>::size);
#pragma unroll
        for (int k = 0; k < in_flight; ++k)
            if (first + k * blockDim.x < parts.packs) {
                sum.add(packs[k]);
                if (first + k * blockDim.x < room) store_elements(kept[first + k * blockDim.x].element, packs[k]);
            }
    }
    for (std::int64_t i = parts.tail + threadIdx.x; i < count; i += blockDim.x) sum.add(load_elements<1>(row + i));
    sum.merge_block();
    return sum;
}

__device__ float log_of(const ExponentialSum& sum) { return ExponentialSum::base(sum.most) + logf(sum.sum); }

// The statistics of a row's part of the classes: log of the sum of exponentials, and the target's logit or 0.
template <class T>
__global__ __launch_bounds__(most_threads) void measure_parts(Logits<const T> a, float* statistics) {
    const T* row = a.logits + blockIdx.x * a.stride;
    const ExponentialSum sum = sum_exponentials(row, RowParts(row, a.classes), a.classes);
    if (threadIdx.x > 0) return;
    const std::int64_t target = a.targets[blockIdx.x], place = target - a.first_class;
    float logit = 0;
    if (target != a.ignore_index) {
        if (target < 0 || target >= a.all_classes)
            logit = __builtin_nanf("");
        else if (place >= 0 && place < a.classes)
            logit = to_float(row[place]);
    }
    statistics[2 * blockIdx.x] = log_of(sum);
    statistics[2 * blockIdx.x + 1] = logit;
}

constexpr int join_threads = 256;

// lse and loss of each row from the statistics of all parts.
__global__ __launch_bounds__(join_threads) void join_parts(const float* statistics, const std::int64_t* targets,
                                                           std::int64_t rows, std::int64_t parts,
                                                           std::int64_t ignore_index, float* lse, float* losses) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * join_threads + threadIdx.x;
    if (row >= rows) return;
    ExponentialSum sum;
    float logit = 0;
    for (std::int64_t p = 0; p < parts; ++p) {
        sum.merge(statistics[2 * (p * rows + row)], 1);
        logit += statistics[2 * (p * rows + row) + 1];
    }
    lse[row] = log_of(sum);
    losses[row] = targets[row] == ignore_index ? 0 : log_of(sum) - logit;
}

// A target that is no class makes the loss not a number: it cannot go unseen.
template <class T>
__device__ float target_logit(const T* row, std::int64_t target, std::int64_t classes) {
    return target >= 0 && target < classes ? to_float(row[target]) : __builtin_nanf("");
}

template <class T>
__global__ __launch_bounds__(most_threads) void measure_rows(Logits<const T> a, float* lse, float* losses) {
    const T* row = a.logits + blockIdx.x * a.stride;
    const ExponentialSum sum = sum_exponentials(row, RowParts(row, a.classes), a.classes);
    if (threadIdx.x > 0) return;
    const std::int64_t target = a.targets[blockIdx.x];
    lse[blockIdx.x] = log_of(sum);
    losses[blockIdx.x] = target == a.ignore_index ? 0 : log_of(sum) - target_logit(row, target, a.classes);
}

// dloss (p - 1 at the target)
template <class T>
__device__ T logit_gradient(float p, std::int64_t i, std::int64_t target, float seed) {
    return from_float<T>(seed * (i == target ? p - 1 : p));
}

// The result may be the row itself: every thread writes only where it has read.
template <class T>
__global__ __launch_bounds__(most_threads) void differentiate_rows(Logits<const T> a, LossSeed dloss, const float* lse,
                                                                   T* dlogits) {
    const T* row = a.logits + blockIdx.x * a.stride;
    T* to = dlogits + blockIdx.x * a.stride;
    const bool ignored = a.targets[blockIdx.x] == a.ignore_index;
    const std::int64_t target = a.targets[blockIdx.x] - a.first_class;
    const float seed = ignored ? 0 : value_of(dloss), from = lse[blockIdx.x];
    auto gradient = [&](T x, std::int64_t i) {
        return ignored ? from_float<T>(0) : logit_gradient<T>(exponential<T>(to_float(x) - from), i, target, seed);
    };
    RowParts parts(row, a.classes);
    constexpr int size = Pack<T>::size;
    if ((reinterpret_cast<std::uintptr_t>(row) ^ reinterpret_cast<std::uintptr_t>(to)) % 16 != 0)
        parts.head = parts.tail = a.classes, parts.packs = 0;
    for (std::int64_t i = threadIdx.x; i < parts.head; i += blockDim.x) to[i] = gradient(row[i], i);
    for (std::int64_t k = threadIdx.x; k < parts.packs; k += blockDim.x) {
        const std::int64_t first = parts.head + k * size;
        Pack<T> pack = load_pack(row + first);
        for (int e = 0; e < size; ++e) pack.element[e] = gradient(pack.element[e], first + e);
        store_pack(to + first, pack);
    }
    for (std::int64_t i = parts.tail + threadIdx.x; i < a.classes; i += blockDim.x) to[i] = gradient(row[i], i);
}

// `room`: how many packs of a row shared memory holds.
template <class T>
__global__ __launch_bounds__(most_threads) void measure_and_differentiate(Logits<T> a, LossSeed dloss, float* losses,
                                                                          std::int64_t room) {
    extern __shared__ __align__(16) unsigned char shared_row[];
    auto* kept = reinterpret_cast<Pack<T>*>(shared_row);
    constexpr int size = Pack<T>::size;
    T* row = a.logits + blockIdx.x * a.stride;
    const std::int64_t target = a.targets[blockIdx.x];
    if (target == a.ignore_index) {
        const RowParts parts(row, a.stride);
        for (std::int64_t i = threadIdx.x; i < parts.head; i += blockDim.x) row[i] = from_float<T>(0);
        for (std::int64_t k = threadIdx.x; k < parts.packs; k += blockDim.x)
            store_pack(row + parts.head + k * size, Pack<T>{});
        for (std::int64_t i = parts.tail + threadIdx.x; i < a.stride; i += blockDim.x) row[i] = from_float<T>(0);
        if (threadIdx.x == 0) losses[blockIdx.x] = 0;
        return;
    }
    const float logit = target_logit(row, target, a.classes); // before the block's threads meet: it will be overwritten
    const RowParts parts(row, a.classes);
    const ExponentialSum sum = sum_exponentials(row, parts, a.classes, kept, room);
    const float seed = value_of(dloss), from = ExponentialSum::base(sum.most), share = 1 / sum.sum;
    if (threadIdx.x == 0) losses[blockIdx.x] = log_of(sum) - logit;
    auto gradient = [&](T x, std::int64_t i) {
        return logit_gradient<T>(exponential<T>(to_float(x) - from) * share, i, target, seed);
    };
    for (std::int64_t i = threadIdx.x; i < parts.head; i += blockDim.x) row[i] = gradient(row[i], i);
#pragma unroll 2
    for (std::int64_t k = threadIdx.x; k < parts.packs; k += blockDim.x) {
        const std::int64_t first = parts.head + k * size;
        Pack<T> pack = k < room ? kept[k] : load_pack(row + first);
        for (int e = 0; e < size; ++e) pack.element[e] = gradient(pack.element[e], first + e);
        store_pack(row + first, pack);
    }
    for (std::int64_t i = parts.tail + threadIdx.x; i < a.stride; i += blockDim.x)
        row[i] = i < a.classes ? gradient(row[i], i) : from_float<T>(0);
}

constexpr int sum_threads = 1024;

__global__ __launch_bounds__(sum_threads) void sum_losses(const float* losses, std::int64_t count, float* loss,
                                                          bool add) {
    __shared__ double shared[sum_threads / warp_size];
    double total = 0;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < count; i += sum_threads) total += static_cast<double>(losses[i]);
    for (int offset = warp_size / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
    if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = total;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < sum_threads / warp_size; ++warp) total += shared[warp];
    *loss = static_cast<float>(add ? static_cast<double>(*loss) + total : total);
}

unsigned threads_for(std::int64_t classes, int pack, std::int64_t most = most_threads / 2) {
    const std::int64_t wanted = divide_up(divide_up(classes, pack), warp_size) * warp_size;
    return static_cast<unsigned>(std::clamp<std::int64_t>(wanted, warp_size, most));
}

template <class T>
Logits<const T> rows_of_request(const KernelRequest& request, const Operand& logits) {
    const std::int64_t classes = logits.type.shape.back();
    return {nullptr,
            nullptr,
            rows_of(logits).count,
            classes,
            classes,
            request.attributes.integer("ignore_index", -100),
            request.attributes.integer("first_class", 0),
            request.attributes.integer("classes", classes)};
}

template <class T>
class CrossEntropy : public Kernel {
  public:
    explicit CrossEntropy(const KernelRequest& request) : rows_(rows_of_request<T>(request, request.inputs[0])) {}

    Bytes workspace() const override { return {rows_.rows * static_cast<std::int64_t>(sizeof(float))}; }

    void run(const Launch& l) const override {
        Logits<const T> a = rows_;
        a.logits = l.in<T>(0), a.targets = l.in<std::int64_t>(1);
        auto* losses = reinterpret_cast<float*>(l.workspace);
        if (a.rows > 0)
            measure_rows<T><<<static_cast<unsigned>(a.rows), threads_for(a.classes, Pack<T>::size), 0, stream_of(l)>>>(
                a, l.out<float>(1), losses);
        launched("cross_entropy");
        launch_loss_sum(losses, a.rows, l.out<float>(0), false, stream_of(l));
    }

  private:
    Logits<const T> rows_;
};

template <class T>
class CrossEntropyGradient : public Kernel {
  public:
    explicit CrossEntropyGradient(const KernelRequest& request)
        : rows_(rows_of_request<T>(request, request.inputs[1])), seed_dtype_(request.inputs[0].type.dtype) {}

    void run(const Launch& l) const override {
        Logits<const T> a = rows_;
        a.logits = l.in<T>(1), a.targets = l.in<std::int64_t>(2);
        if (a.rows == 0) return;
        differentiate_rows<T>
            <<<static_cast<unsigned>(a.rows), threads_for(a.classes, Pack<T>::size), 0, stream_of(l)>>>(
                a, {l.inputs[0], seed_dtype_}, l.in<float>(3), l.out<T>(0));
        launched("cross_entropy_gradient");
    }

  private:
    Logits<const T> rows_;
    DType seed_dtype_;
};

template <class T>
class CrossEntropyPart : public Kernel {
  public:
    explicit CrossEntropyPart(const KernelRequest& request) : rows_(rows_of_request<T>(request, request.inputs[0])) {}

    void run(const Launch& l) const override {
        Logits<const T> a = rows_;
        a.logits = l.in<T>(0), a.targets = l.in<std::int64_t>(1);
        if (a.rows == 0) return;
        measure_parts<T><<<static_cast<unsigned>(a.rows), threads_for(a.classes, Pack<T>::size), 0, stream_of(l)>>>(
            a, l.out<float>(0));
        launched("cross_entropy_part");
    }

  private:
    Logits<const T> rows_;
};

class CrossEntropyJoin : public Kernel {
  public:
    explicit CrossEntropyJoin(const KernelRequest& request)
        : parts_(request.inputs[0].type.shape[0]), rows_(request.inputs[1].elements()),
          ignore_index_(request.attributes.integer("ignore_index", -100)) {}

    Bytes workspace() const override { return {rows_ * static_cast<std::int64_t>(sizeof(float))}; }

    void run(const Launch& l) const override {
        auto* losses = reinterpret_cast<float*>(l.workspace);
        if (rows_ > 0)
            join_parts<<<static_cast<unsigned>(divide_up(rows_, join_threads)), join_threads, 0, stream_of(l)>>>(
                l.in<float>(0), l.in<std::int64_t>(1), rows_, parts_, ignore_index_, l.out<float>(1), losses);
        launched("cross_entropy_join");
        launch_loss_sum(losses, rows_, l.out<float>(0), false, stream_of(l));
    }

  private:
    std::int64_t parts_, rows_, ignore_index_;
};

template <class T>
void launch_rows(const LossRows& rows, const LossSeed& seed, float* losses, const Gpu& gpu, cudaStream_t stream) {
    constexpr int reserved = 1024; // for what the kernel has in shared memory beside the row
    const std::int64_t limit = (gpu.shared_bytes - reserved) / 16 * 16;
    const std::int64_t bytes = std::min(limit, rows.classes * static_cast<std::int64_t>(sizeof(T)) / 16 * 16);
    check(cudaFuncSetAttribute(measure_and_differentiate<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(limit)),
          "cross entropy");
    // Two blocks of a multiprocessor, or one that is twice as large.
    const unsigned threads =
        threads_for(rows.classes, Pack<T>::size, 2 * bytes <= limit ? most_threads / 2 : most_threads);
    const Logits<T> logits{
        reinterpret_cast<T*>(rows.logits), rows.targets, rows.rows, rows.classes, rows.stride, rows.ignore_index};
    measure_and_differentiate<T>
        <<<static_cast<unsigned>(rows.rows), threads, static_cast<std::size_t>(bytes), stream>>>(logits, seed, losses,
                                                                                                 bytes / 16);
    launched("cross entropy");
}

} // namespace

void launch_loss_and_gradient(const LossRows& rows, const LossSeed& seed, float* losses, const Gpu& gpu,
                              cudaStream_t stream) {
    if (rows.rows == 0) return;
    TUTTI_CHECK(rows.dtype == DType::float32 || rows.dtype == DType::bfloat16, "logits of {}", name_of(rows.dtype));
    if (rows.dtype == DType::float32)
        launch_rows<float>(rows, seed, losses, gpu, stream);
    else
        launch_rows<bf16>(rows, seed, losses, gpu, stream);
}

void launch_loss_sum(const float* losses, std::int64_t count, float* loss, bool add, cudaStream_t stream) {
    sum_losses<<<1, sum_threads, 0, stream>>>(losses, count, loss, add);
    launched("cross entropy");
}

void add_loss_kernels(KernelTable& table, const Gpu&) {
    add_floating<CrossEntropy>(table, "cross_entropy", 0);
    add_floating<CrossEntropyGradient>(table, "cross_entropy_gradient", 1);
    add_floating<CrossEntropyPart>(table, "cross_entropy_part", 0);
    table.add("cross_entropy_join", PrepareKernel([](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                  return std::make_unique<CrossEntropyJoin>(request);
              }));
}

} // namespace tutti::backend::cuda

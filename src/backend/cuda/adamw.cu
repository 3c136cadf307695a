// AdamW over a chunk: one pass over all its ranges. What changes per step is worked out by one thread before, from the
// scalars in device memory.
#include "backend/cuda/device_array.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/step.h"
#include "backend/random_stream.h"

namespace tutti::backend::cuda {
namespace {

struct Step {
    float gradient_scale; // clip factor / loss scale
    float decay;          // 1 - learning rate * weight decay
    float beta1, beta2;
    float rest1, rest2; // 1 - beta
    float step_size;    // learning rate / (1 - beta1^t)
    float inverse_root; // 1 / sqrt(1 - beta2^t)
    float epsilon;
    int finite; // 0: nothing changes
    PhiloxKey key;
};

__global__ void prepare_step(const StepScalars* scalars, Step* step) {
    const StepScalars& s = *scalars;
    const auto t = static_cast<double>(s.step + 1);
    *step = {.gradient_scale = static_cast<float>(s.clip_factor / s.loss_scale),
             .decay = static_cast<float>(1 - s.learning_rate * s.weight_decay),
             .beta1 = static_cast<float>(s.beta1),
             .beta2 = static_cast<float>(s.beta2),
             .rest1 = static_cast<float>(1 - s.beta1),
             .rest2 = static_cast<float>(1 - s.beta2),
             .step_size = static_cast<float>(s.learning_rate / (1 - pow(s.beta1, t))),
             .inverse_root = static_cast<float>(1 / sqrt(1 - pow(s.beta2, t))),
             .epsilon = static_cast<float>(s.epsilon),
             .finite = s.finite != 0,
             .key = key_of(s)};
}

constexpr int threads = 256;
constexpr std::int64_t piece = threads * 32; // elements of a block
// Elements that a thread takes at once: those that share random words, else a pack of floats.
constexpr int group_of(bool draws) { return draws ? update_group : 4; }

// A range of the chunk, and the first of the blocks that work on it.
struct Range {
    std::int64_t begin, end;
    std::uint64_t stream; // of random numbers
    std::int64_t first;   // number of its first element there; a multiple of the group
    std::int64_t first_block;
    int decays;
};

template <class Gradient, class Weight, class Moment>
struct Chunk {
    const Gradient* gradients;
    Weight* weights;
    Moment *moments1, *moments2;
    float* master; // or null
};

// Moments of parameters that get no gradient (rare tokens) would end as subnormals.
__device__ float normal_or_zero(float x) { return fabsf(x) < 0x1p-126f ? 0.0f : x; }

// The random words of a group; none for what is not rounded stochastically.
template <bool draws, bool has_master, class Weight, class Moment>
struct Words {
    static constexpr bool of_weight = draws && !has_master && sizeof(Weight) == 2;
    static constexpr bool of_moments = draws && sizeof(Moment) == 2;
    std::array<std::uint32_t, 4> weight = {}, moment1 = {}, moment2 = {};

    __device__ Words(PhiloxKey key, std::uint64_t stream, std::uint64_t block) {
        if constexpr (of_weight) weight = update_words(key, stream, Rounded::weight, block);
        if constexpr (of_moments) moment1 = update_words(key, stream, Rounded::moment1, block);
        if constexpr (of_moments) moment2 = update_words(key, stream, Rounded::moment2, block);
    }
};

template <bool drawn, class T>
__device__ T rounded(float x, const std::array<std::uint32_t, 4>& words, int e) {
    if constexpr (drawn)
        return __ushort_as_bfloat16(round_stochastically(__float_as_uint(x), update_bits(words, e)));
    else
        return from_float<T>(x);
}

// Element e of its group. Computed as on the CPU (cpu/simd/optimizer.cpp), to the bit: in float, narrow ones from what
// they hold, and which products are rounded is written out.
template <bool draws, bool has_master, class Gradient, class Weight, class Moment>
__device__ void update(const Step& s, float decay, const Words<draws, has_master, Weight, Moment>& words, int e,
                       Gradient gradient, Weight& weight, Moment& moment1, Moment& moment2, float& master) {
    using Drawn = Words<draws, has_master, Weight, Moment>;
    const float g = __fmul_rn(to_float(gradient), s.gradient_scale), part = __fmul_rn(s.rest2, g);
    const float first = normal_or_zero(__fmaf_rn(s.rest1, g, __fmul_rn(s.beta1, to_float(moment1))));
    const float second = normal_or_zero(__fmaf_rn(part, g, __fmul_rn(s.beta2, to_float(moment2))));
    const float before = has_master ? master : to_float(weight);
    const float root = __fmaf_rn(__fsqrt_rn(second), s.inverse_root, s.epsilon);
    const float after = __fmaf_rn(before, decay, -__fdiv_rn(__fmul_rn(s.step_size, first), root));
    moment1 = rounded<Drawn::of_moments, Moment>(first, words.moment1, e);
    moment2 = rounded<Drawn::of_moments, Moment>(second, words.moment2, e);
    weight = rounded<Drawn::of_weight, Weight>(after, words.weight, e);
    if (has_master) master = after;
}

// The range that a block works on: the last that does not begin after it.
__device__ Range find_range(const Range* ranges, int count, std::int64_t block) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (ranges[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return ranges[low];
}

template <bool draws, bool has_master, class Gradient, class Weight, class Moment>
__global__ void __launch_bounds__(threads)
    adamw_kernel(const Step* step, const Range* ranges, int range_count, bool aligned, bool restores,
                 Chunk<Gradient, Weight, Moment> chunk) {
    using Drawn = Words<draws, has_master, Weight, Moment>;
    constexpr int group = group_of(draws);
    const Step s = *step;
    if (s.finite == 0 && !(has_master && restores)) return;
    const Range range = find_range(ranges, range_count, blockIdx.x);
    const float decay = range.decays ? s.decay : 1.0f;
    const std::int64_t begin = range.begin + (blockIdx.x - range.first_block) * piece;
    const std::int64_t end = min(begin + piece, range.end);
    if constexpr (has_master)
        if (s.finite == 0) { // gradients lie where the weights were
            for (std::int64_t i = begin + threadIdx.x; i < end; i += threads)
                chunk.weights[i] = from_float<Weight>(chunk.master[i]);
            return;
        }
    const bool packed = aligned && range.begin % group == 0;
    for (std::int64_t i = begin + threadIdx.x * group; i < end; i += threads * group) {
        const std::uint64_t block = static_cast<std::uint64_t>(i - range.begin + range.first) / group;
        if (packed && i + group <= end) {
            const auto g = load_group<Gradient, group>(chunk.gradients + i, false);
            auto w = load_group<Weight, group>(chunk.weights + i, false);
            auto m = load_group<Moment, group>(chunk.moments1 + i, false);
            auto v = load_group<Moment, group>(chunk.moments2 + i, false);
            Group<float, group> master = {};
            if constexpr (has_master) master = load_group<float, group>(chunk.master + i, false);
            const Drawn words(s.key, range.stream, block);
#pragma unroll
            for (int e = 0; e < group; ++e)
                update(s, decay, words, e, g.element[e], w.element[e], m.element[e], v.element[e], master.element[e]);
            *reinterpret_cast<Group<Weight, group>*>(chunk.weights + i) = w;
            *reinterpret_cast<Group<Moment, group>*>(chunk.moments1 + i) = m;
            *reinterpret_cast<Group<Moment, group>*>(chunk.moments2 + i) = v;
            if constexpr (has_master) *reinterpret_cast<Group<float, group>*>(chunk.master + i) = master;
        } else {
            const Drawn words(s.key, range.stream, block);
#pragma unroll
            for (int e = 0; e < group; ++e) {
                if (i + e >= end) break;
                float master = has_master ? chunk.master[i + e] : 0;
                update(s, decay, words, e, chunk.gradients[i + e], chunk.weights[i + e], chunk.moments1[i + e],
                       chunk.moments2[i + e], master);
                if (has_master) chunk.master[i + e] = master;
            }
        }
    }
}

template <class Gradient, class Weight, class Moment>
class Adamw : public Kernel {
  public:
    explicit Adamw(const KernelRequest& request)
        : ranges_(ranges_of(request)), count_(static_cast<int>(request.attributes.integers("ranges").size() / 3)),
          blocks_(blocks_of(request)), draws_(request.attributes.has("streams")),
          restores_(request.attributes.flag("restores")) {}

    Bytes workspace() const override { return {sizeof(Step)}; }

    void run(const Launch& launch) const override {
        if (blocks_ == 0) return;
        auto* step = reinterpret_cast<Step*>(launch.workspace);
        prepare_step<<<1, 1, 0, stream_of(launch)>>>(launch.scalars, step);
        launched("adamw");
        const Chunk<Gradient, Weight, Moment> chunk{launch.in<Gradient>(0), launch.out<Weight>(0),
                                                    launch.out<Moment>(1), launch.out<Moment>(2),
                                                    launch.outputs.size() == 4 ? launch.out<float>(3) : nullptr};
        const bool aligned = fits(chunk.gradients) && fits(chunk.weights) && fits(chunk.moments1) &&
                             fits(chunk.moments2) && fits(chunk.master);
        const bool narrow = sizeof(Weight) == 2 || sizeof(Moment) == 2;
        const auto kernel = choose(draws_ && narrow, chunk.master != nullptr);
        kernel<<<static_cast<unsigned>(blocks_), threads, 0, stream_of(launch)>>>(step, ranges_.data(), count_, aligned,
                                                                                  restores_, chunk);
        launched("adamw");
    }

  private:
    using Function = void (*)(const Step*, const Range*, int, bool, bool, Chunk<Gradient, Weight, Moment>);
    static Function choose(bool draws, bool has_master) {
        if constexpr (sizeof(Weight) == 2 || sizeof(Moment) == 2) {
            if (draws)
                return has_master ? adamw_kernel<true, true, Gradient, Weight, Moment>
                                  : adamw_kernel<true, false, Gradient, Weight, Moment>;
        }
        return has_master ? adamw_kernel<false, true, Gradient, Weight, Moment>
                          : adamw_kernel<false, false, Gradient, Weight, Moment>;
    }
    template <class T>
    static bool fits(const T* pointer) {
        return reinterpret_cast<std::uintptr_t>(pointer) % (sizeof(T) * update_group) == 0;
    }

    static std::int64_t blocks_of_range(std::int64_t begin, std::int64_t end) { return divide_up(end - begin, piece); }
    static std::int64_t blocks_of(const KernelRequest& request) {
        const std::vector<std::int64_t>& ranges = request.attributes.integers("ranges");
        std::int64_t blocks = 0;
        for (std::size_t r = 0; r + 2 < ranges.size(); r += 3) blocks += blocks_of_range(ranges[r], ranges[r + 1]);
        return blocks;
    }
    static std::vector<Range> ranges_of(const KernelRequest& request) {
        const std::vector<std::int64_t>& ranges = request.attributes.integers("ranges");
        std::vector<Range> result;
        std::int64_t blocks = 0;
        for (std::size_t r = 0; r + 2 < ranges.size(); r += 3) {
            std::uint64_t stream = 0;
            if (request.attributes.has("streams"))
                stream = static_cast<std::uint64_t>(request.attributes.integers("streams")[r / 3]);
            const std::int64_t first =
                request.attributes.has("firsts") ? request.attributes.integers("firsts")[r / 3] : 0;
            result.push_back({ranges[r], ranges[r + 1], stream, first, blocks, ranges[r + 2] != 0});
            blocks += blocks_of_range(ranges[r], ranges[r + 1]);
        }
        return result;
    }

    DeviceArray<Range> ranges_;
    int count_;
    std::int64_t blocks_;
    bool draws_, restores_;
};

std::unique_ptr<Kernel> prepare_adamw(const KernelRequest& request) {
    const auto& out = request.outputs;
    if (out[2].type.dtype != out[1].type.dtype || (out.size() == 4 && out[3].type.dtype != DType::float32))
        fail_unsupported(backend_name, request);
    return for_floating(request, request.inputs[0].type.dtype, [&]<class Gradient>() {
        return for_floating(request, out[0].type.dtype, [&]<class Weight>() {
            return for_floating(request, out[1].type.dtype, [&]<class Moment>() -> std::unique_ptr<Kernel> {
                return std::make_unique<Adamw<Gradient, Weight, Moment>>(request);
            });
        });
    });
}

} // namespace

void add_adamw_kernel(KernelTable& table) { table.add("adamw", PrepareKernel(prepare_adamw)); }

} // namespace tutti::backend::cuda

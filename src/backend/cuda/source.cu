// Kernels without inputs: constants, positions, rotary tables, step scalars; and dropout.
#include "backend/cuda/device_array.h"
#include "backend/cuda/elementwise.h"
#include "backend/random_stream.h"

#include <cmath>

namespace tutti::backend::cuda {
namespace {

constexpr int threads = 256;

// ---- fill

template <class T>
struct Constant {
    T value;
    __device__ T operator()() const { return value; }
};

std::unique_ptr<Kernel> prepare_fill(const KernelRequest& request) {
    const double value = request.attributes.real("value");
    switch (request.outputs[0].type.dtype) {
    case DType::float32:
        return std::make_unique<ElementKernel<Constant<float>, float>>(request, Constant<float>{float(value)});
    case DType::bfloat16:
        return std::make_unique<ElementKernel<Constant<float>, bf16>>(request, Constant<float>{float(value)});
    case DType::int64: {
        using Number = std::int64_t;
        return std::make_unique<ElementKernel<Constant<Number>, Number>>(request, Constant<Number>{Number(value)});
    }
    case DType::int32: {
        using Number = std::int32_t;
        return std::make_unique<ElementKernel<Constant<Number>, Number>>(request, Constant<Number>{Number(value)});
    }
    case DType::boolean:
        return std::make_unique<ElementKernel<Constant<bool>, Boolean>>(request, Constant<bool>{value != 0});
    default: fail_unsupported(backend_name, request);
    }
}

// ---- iota, step_scalar

__global__ void iota_kernel(std::int64_t* out, std::int64_t count, std::int64_t start) {
    const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) out[i] = start + i;
}

void iota(const KernelRequest& request, const Launch& launch) {
    const std::int64_t count = request.outputs[0].elements();
    iota_kernel<<<static_cast<unsigned>(divide_up(count, threads)), threads, 0, stream_of(launch)>>>(
        launch.out<std::int64_t>(0), count, request.attributes.integer("start", 0));
    launched("iota");
}

// loss_seed, the only field there is
template <class T>
__global__ void step_scalar_kernel(T* out, const StepScalars* scalars) {
    *out = stored<T>(scalars->loss_scale * scalars->inverse_tokens);
}

void step_scalar(const KernelRequest& request, const Launch& launch) {
    for_floating(request, request.outputs[0].type.dtype, [&]<class T>() {
        step_scalar_kernel<<<1, 1, 0, stream_of(launch)>>>(launch.out<T>(0), launch.scalars);
    });
    launched("step_scalar");
}

// ---- rotary_table

// The angle is rounded to float32, as the models' authors compute it.
template <class T>
__global__ void rotary_table_kernel(T* cosines, T* sines, const float* frequencies, std::int64_t count,
                                    std::int64_t width, std::int64_t start, double scale) {
    const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float angle = __fmul_rn(static_cast<float>(start + i / width), frequencies[i % width]);
    double sine, cosine;
    sincos(static_cast<double>(angle), &sine, &cosine);
    cosines[i] = stored<T>(scale * cosine);
    sines[i] = stored<T>(scale * sine);
}

template <class T>
class RotaryTable : public Kernel {
  public:
    explicit RotaryTable(const KernelRequest& request)
        : count_(request.outputs[0].elements()), width_(request.outputs[0].type.shape.back()),
          start_(request.attributes.integer("start", 0)), scale_(request.attributes.real("scale", 1)),
          frequencies_(narrowed(request.attributes.reals("frequencies"))) {}

    void run(const Launch& launch) const override {
        if (count_ == 0) return;
        rotary_table_kernel<<<static_cast<unsigned>(divide_up(count_, threads)), threads, 0, stream_of(launch)>>>(
            launch.out<T>(0), launch.out<T>(1), frequencies_.data(), count_, width_, start_, scale_);
        launched("rotary_table");
    }

  private:
    static std::vector<float> narrowed(const std::vector<double>& values) {
        std::vector<float> result;
        for (double value : values) result.push_back(static_cast<float>(value));
        return result;
    }
    std::int64_t count_, width_, start_;
    double scale_;
    DeviceArray<float> frequencies_;
};

std::unique_ptr<Kernel> prepare_rotary_table(const KernelRequest& request) {
    return for_floating(request, request.outputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<RotaryTable<T>>(request);
    });
}

// ---- dropout

// Which random numbers elements draw. They are walked with the tensor: the place of an element in the whole sample, of
// which x may hold a part, and its sample are linear in the coordinates, just as the places in memory.
struct Draws {
    std::uint64_t source;
    std::int64_t first_sample, first_element;
    std::uint32_t threshold; // of 2^24: a draw below it falls
    float scale;             // of what stays
};
enum { output, input, element, sample, walked };

// A group of 4 or 8 starts at an element whose number is a multiple of 4: one block of Philox gives 4 draws.
template <int size, class T>
__global__ void __launch_bounds__(threads)
    dropout_kernel(Walk<walked> walk, std::int64_t first, Draws draws, const StepScalars* scalars, const T* x, T* y) {
    const std::int64_t i = first + std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i >= walk.count) return;
    std::int64_t at[walked];
    walk.locate(i, at);
    auto group = load_group<T, size>(x + at[input], walk.repeats[input]);
    const PhiloxKey key = key_of(*scalars);
    const std::int64_t global = scalars->first_sample + draws.first_sample + at[sample];
    const std::uint64_t stream = mix_bits(draws.source, static_cast<std::uint64_t>(global)); // stream_of
    const auto number = static_cast<std::uint64_t>(draws.first_element + at[element]);
    auto drop = [&](T& value, std::uint32_t bits) {
        value = from_float<T>((bits >> 8) < draws.threshold ? 0.0f : to_float(value) * draws.scale);
    };
    if constexpr (size == 1) {
        drop(group.element[0], philox_draw(key, stream, number));
    } else {
#pragma unroll
        for (int four = 0; four < size; four += 4) {
            const std::uint64_t block = number / 4 + four / 4;
            const auto words =
                philox(key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                             static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
#pragma unroll
            for (int e = 0; e < 4; ++e) drop(group.element[four + e], words[e]);
        }
    }
    *reinterpret_cast<Group<T, size>*>(y + at[output]) = group;
}

template <class T>
class Dropout : public Kernel {
  public:
    explicit Dropout(const KernelRequest& request) {
        const Attributes& a = request.attributes;
        const Shape& shape = request.inputs[0].type.shape;
        const double p = a.real("p");
        draws_ = {.source = hash_of(request.source),
                  .first_sample = a.integer("first_sample", 0),
                  .first_element = 0,
                  .threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24)),
                  .scale = static_cast<float>(1 / (1 - p))};
        Shape elements = shape, samples = shape;
        std::int64_t stride = 1;
        for (int d = shape.rank() - 1; d > 0; --d) {
            const auto at = static_cast<std::size_t>(d - 1);
            samples[d] = 0;
            elements[d] = stride;
            if (a.has("offsets")) draws_.first_element += a.integers("offsets")[at] * stride;
            stride *= a.has("whole") ? a.integers("whole")[at] : shape[d];
        }
        elements[0] = 0;
        samples[0] = 1;
        one_by_one_ = {shape, std::vector{request.outputs[0].strides, request.inputs[0].strides, elements, samples}};
        groups_ = one_by_one_;
        grouped_ = groups_.group(size) && !groups_.repeats[element] && groups_.repeats[sample] &&
                   draws_.first_element % size == 0;
    }

    void run(const Launch& launch) const override {
        auto fits = [](const T* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
        std::int64_t done = 0;
        if (grouped_ && fits(launch.out<T>(0)) && (groups_.repeats[input] || fits(launch.in<T>(0)))) {
            run<size>(launch, groups_, 0);
            done = groups_.count * size;
        }
        run<1>(launch, one_by_one_, done);
    }

  private:
    static constexpr int size = Pack<T>::size;

    template <int each>
    void run(const Launch& launch, const Walk<walked>& walk, std::int64_t first) const {
        if (first >= walk.count) return;
        Draws draws = draws_;
        draws.first_sample += launch.samples_before;
        const auto blocks = static_cast<unsigned>(divide_up(walk.count - first, threads));
        dropout_kernel<each><<<blocks, threads, 0, stream_of(launch)>>>(walk, first, draws, launch.scalars,
                                                                        launch.in<T>(0), launch.out<T>(0));
        launched("dropout");
    }

    Draws draws_;
    Walk<walked> one_by_one_, groups_;
    bool grouped_;
};

} // namespace

void add_source_kernels(KernelTable& table) {
    table.add("fill", PrepareKernel(prepare_fill));
    table.add("iota", KernelFunction(iota));
    table.add("rotary_table", PrepareKernel(prepare_rotary_table));
    table.add("step_scalar", KernelFunction(step_scalar));
    add_floating<Dropout>(table, "dropout");
}

} // namespace tutti::backend::cuda

// AdamW to the bit: hosts and GPUs come to the same numbers, so a plan may have either of them update a chunk.
#include "backend/cpu/cpu.h"
#include "base/philox.h"
#include "operators/cuda_device.h"
#include "operators/operator_cases.h"

#include <cmath>

namespace tutti::testing {

using namespace backend;
using namespace backend::cpu;
namespace {

constexpr std::int64_t count = 10'007;

// Of all sizes, and zeros.
std::vector<double> numbers(std::uint64_t stream, bool positive) {
    std::vector<double> result;
    for (std::uint64_t i = 0; i < count; ++i) {
        const double one = uniform_from_bits(philox_draw({1, 2}, stream, i)) * 2 - 1;
        const double size = std::exp2(60 * (uniform_from_bits(philox_draw({3, 4}, stream, i)) - 0.7));
        result.push_back(static_cast<float>(i % 97 == 0 ? 0 : (positive ? std::abs(one) : one) * size));
    }
    return result;
}

struct Updated {
    float weight, moment1, moment2;
    bool operator==(const Updated&) const = default;
};

float normal_or_zero(float x) { return std::abs(x) < 0x1p-126f ? 0.0f : x; }

// Every rounding, one after the other.
Updated updated(float gradient, Updated before, const StepScalars& s) {
    const double t = static_cast<double>(s.step) + 1;
    const float scale = static_cast<float>(s.clip_factor / s.loss_scale), g = gradient * scale;
    const auto rest1 = static_cast<float>(1 - s.beta1), rest2 = static_cast<float>(1 - s.beta2);
    const float old1 = static_cast<float>(s.beta1) * before.moment1,
                old2 = static_cast<float>(s.beta2) * before.moment2;
    const float part = rest2 * g;
    const float m = normal_or_zero(std::fma(rest1, g, old1)), v = normal_or_zero(std::fma(part, g, old2));
    const auto step = static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, t)));
    const auto inverse = static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, t)));
    const auto decay = static_cast<float>(1 - s.learning_rate * s.weight_decay);
    const float moved = step * m;
    const float change = moved / std::fma(std::sqrt(v), inverse, static_cast<float>(s.epsilon));
    return {std::fma(before.weight, decay, -change), m, v};
}

void expect_the_formula(const Device& device) {
    StepScalars scalars;
    scalars.step = 6;
    scalars.learning_rate = 3e-3;
    scalars.weight_decay = 0.1;
    scalars.clip_factor = 0.37;
    const std::vector<double> gradients = numbers(1, false), weights = numbers(2, false), moments1 = numbers(3, false),
                              moments2 = numbers(4, true);
    const TensorType type{DType::float32, {count}};
    std::vector<HostTensor> chunk{dense_tensor(type, weights), dense_tensor(type, moments1),
                                  dense_tensor(type, moments2)};
    run_kernel(device, "adamw", {{"ranges", std::vector<std::int64_t>{0, count, 1}}}, {dense_tensor(type, gradients)},
               chunk, scalars);
    const std::vector<double> weight = chunk[0].values(), first = chunk[1].values(), second = chunk[2].values();
    int different = 0;
    for (std::size_t i = 0; i < count; ++i) {
        auto single = [](double x) { return static_cast<float>(x); };
        const Updated before{single(weights[i]), single(moments1[i]), single(moments2[i])};
        const Updated now{single(weight[i]), single(first[i]), single(second[i])};
        different += now != updated(single(gradients[i]), before, scalars);
    }
    EXPECT_EQ(different, 0) << "of " << count;
}

TEST(AdamwBits, OnTheCpu) {
    if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "this CPU has no fused products";
    expect_the_formula(*make_cpu_device(2));
}

TEST(AdamwBits, OnTheGpu) {
    skip_without_cuda();
    if (cuda_device().device) expect_the_formula(*cuda_device().device);
}

} // namespace
} // namespace tutti::testing

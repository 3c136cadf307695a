// AdamW over a range of a chunk, for every mixture of element types.
#include "backend/cpu/simd/parts.h"

namespace tutti::cpu::TUTTI_ISA {
namespace {

// Moments of parameters that get no gradient (rare tokens) would end as subnormals, for ever, and these are slow.
TUTTI_INLINE float normal_or_zero(float x) { return absolute(x) < 0x1p-126f ? 0.0f : x; }

// `master` holds the weights in float where they are stored narrower.
template <class Gradient, class Weight, class Moment, bool has_master>
void adamw(const void* gradients, void* weights, void* moments1, void* moments2, float* master, std::int64_t begin,
           std::int64_t end, const AdamwStep& step) {
    const auto* g = static_cast<const Gradient*>(gradients);
    auto* w = static_cast<Weight*>(weights);
    auto* m = static_cast<Moment*>(moments1);
    auto* v = static_cast<Moment*>(moments2);
    const AdamwStep s = step;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
        const float gradient = load(&g[i]) * s.gradient_scale;
        const float first = normal_or_zero(s.beta1 * load(&m[i]) + s.rest1 * gradient);
        const float second = normal_or_zero(s.beta2 * load(&v[i]) + s.rest2 * gradient * gradient);
        const float before = has_master ? master[i] : load(&w[i]);
        const float after =
            before * s.decay - s.step_size * first / (__builtin_sqrtf(second) * s.inverse_root + s.epsilon);
        store(&m[i], first);
        store(&v[i], second);
        if (has_master) master[i] = after;
        store(&w[i], after);
    }
}

template <class Gradient, class Weight, class Moment>
void adamw_of(const void* gradients, void* weights, void* moments1, void* moments2, float* master, std::int64_t begin,
              std::int64_t end, const AdamwStep& step) {
    if (master)
        adamw<Gradient, Weight, Moment, true>(gradients, weights, moments1, moments2, master, begin, end, step);
    else
        adamw<Gradient, Weight, Moment, false>(gradients, weights, moments1, moments2, nullptr, begin, end, step);
}

template <class Gradient, class Weight>
AdamwFunction by_moment(DType moments) {
    if (moments == DType::float32) return adamw_of<Gradient, Weight, float>;
    if (moments == DType::bfloat16) return adamw_of<Gradient, Weight, BFloat16>;
    return nullptr;
}

template <class Gradient>
AdamwFunction by_weight(DType weights, DType moments) {
    if (weights == DType::float32) return by_moment<Gradient, float>(moments);
    if (weights == DType::bfloat16) return by_moment<Gradient, BFloat16>(moments);
    return nullptr;
}

} // namespace

AdamwFunction adamw_function(DType gradients, DType weights, DType moments) {
    if (gradients == DType::float32) return by_weight<float>(weights, moments);
    if (gradients == DType::bfloat16) return by_weight<BFloat16>(weights, moments);
    return nullptr;
}

} // namespace tutti::cpu::TUTTI_ISA

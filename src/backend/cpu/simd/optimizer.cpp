// AdamW over a range of a chunk, for every mixture of element types.
#include "backend/cpu/simd/kept.h"
#include "backend/cpu/simd/parts.h"
#include "backend/random_stream.h"

namespace tutti::backend::cpu::TUTTI_ISA {
namespace {

// Moments of parameters that get no gradient (rare tokens) would end as subnormals, for ever, and these are slow.
TUTTI_INLINE float normal_or_zero(float x) { return absolute(x) < 0x1p-126f ? 0.0f : x; }

// Stochastic rounding, as in backend/random_stream.h.
TUTTI_INLINE void store_drawn(float* p, float x, std::uint16_t) { *p = x; }
TUTTI_INLINE void store_drawn(BFloat16* p, float x, std::uint16_t random) {
    const std::uint32_t wide = bits_of(x), magnitude = wide & 0x7fffffff;
    const std::uint32_t quiet = (wide >> 16) | (magnitude > 0x7f800000 ? 0x40u : 0u);
    p->bits = static_cast<std::uint16_t>(magnitude >= 0x7f800000 ? quiet : (wide + random) >> 16);
}

// The chunk's arrays; `master` holds the weights in float where they are stored narrower.
template <class Gradient, class Weight, class Moment>
struct Arrays {
    const Gradient* gradients;
    Weight* weights;
    Moment *moments1, *moments2;
    float* master;
};

struct Updated {
    float weight, first, second;
};

// a b + c, rounded once where the instruction set can.
TUTTI_INLINE float fused(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// Which products are rounded is written out, here and in cuda/adamw.cu: so it makes no difference to a bit whether the
// host or the GPU updates a chunk.
template <bool has_master, class Gradient, class Weight, class Moment>
TUTTI_INLINE Updated update(const Arrays<Gradient, Weight, Moment>& a, std::int64_t i, const AdamwStep& s) {
    const float gradient = load(&a.gradients[i]) * s.gradient_scale, part = s.rest2 * gradient;
    const float first = normal_or_zero(fused(s.rest1, gradient, s.beta1 * load(&a.moments1[i])));
    const float second = normal_or_zero(fused(part, gradient, s.beta2 * load(&a.moments2[i])));
    const float before = has_master ? a.master[i] : load(&a.weights[i]);
    const float change = s.step_size * first / fused(__builtin_sqrtf(second), s.inverse_root, s.epsilon);
    return {fused(before, s.decay, -change), first, second};
}

template <bool has_master, class Gradient, class Weight, class Moment>
void adamw_nearest(const Arrays<Gradient, Weight, Moment>& arrays, std::int64_t begin, std::int64_t end,
                   const AdamwStep& step) {
    const Arrays<Gradient, Weight, Moment> a = arrays;
    const AdamwStep s = step;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
        const Updated now = update<has_master>(a, i, s);
        store(&a.moments1[i], now.first);
        store(&a.moments2[i], now.second);
        if (has_master) a.master[i] = now.weight;
        store(&a.weights[i], now.weight);
    }
}

// Sixteen random bits for each of the `strip` elements from number `first` on, as in backend/random_stream.h.
template <int strip>
TUTTI_INLINE void draw_bits(const AdamwDraws& draws, Rounded what, std::uint64_t first, std::uint16_t (&bits)[strip]) {
    constexpr int blocks = strip / update_group;
    std::uint32_t words[4][blocks];
    const std::uint64_t from = first / update_group + (static_cast<std::uint64_t>(what) << 62);
    draw_words<blocks>(
        draws.key, draws.stream, [from](int i) { return from + static_cast<std::uint64_t>(i); }, words);
    for (int word = 0; word < 4; ++word)
        for (int i = 0; i < blocks; ++i) {
            bits[i * update_group + 2 * word] = static_cast<std::uint16_t>(words[word][i]);
            bits[i * update_group + 2 * word + 1] = static_cast<std::uint16_t>(words[word][i] >> 16);
        }
}

// Weights with a master are its copy, rounded to nearest; all else that is narrow is rounded stochastically.
template <bool has_master, class Gradient, class Weight, class Moment>
void adamw_drawn(const Arrays<Gradient, Weight, Moment>& arrays, std::int64_t begin, std::int64_t end,
                 const AdamwStep& step, const AdamwDraws& draws) {
    constexpr int strip = 128;
    const Arrays<Gradient, Weight, Moment> a = arrays;
    const AdamwStep s = step;
    std::uint16_t weights[strip] = {}, moments1[strip] = {}, moments2[strip] = {}; // random bits
    for (std::int64_t from = begin; from < end; from += strip) {
        const auto first = static_cast<std::uint64_t>(draws.first + (from - begin));
        if (!has_master && sizeof(Weight) == 2) draw_bits(draws, Rounded::weight, first, weights);
        if (sizeof(Moment) == 2) {
            draw_bits(draws, Rounded::moment1, first, moments1);
            draw_bits(draws, Rounded::moment2, first, moments2);
        }
        const std::int64_t count = end - from < strip ? end - from : strip;
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) {
            const std::int64_t i = from + j;
            const Updated now = update<has_master>(a, i, s);
            store_drawn(&a.moments1[i], now.first, moments1[j]);
            store_drawn(&a.moments2[i], now.second, moments2[j]);
            if (has_master) {
                a.master[i] = now.weight;
                store(&a.weights[i], now.weight);
            } else {
                store_drawn(&a.weights[i], now.weight, weights[j]);
            }
        }
    }
}

template <class Gradient, class Weight, class Moment>
void adamw(const void* gradients, void* weights, void* moments1, void* moments2, float* master, std::int64_t begin,
           std::int64_t end, const AdamwStep& step, const AdamwDraws* draws) {
    const Arrays<Gradient, Weight, Moment> arrays{static_cast<const Gradient*>(gradients),
                                                  static_cast<Weight*>(weights), static_cast<Moment*>(moments1),
                                                  static_cast<Moment*>(moments2), master};
    if (draws && master)
        adamw_drawn<true>(arrays, begin, end, step, *draws);
    else if (draws)
        adamw_drawn<false>(arrays, begin, end, step, *draws);
    else if (master)
        adamw_nearest<true>(arrays, begin, end, step);
    else
        adamw_nearest<false>(arrays, begin, end, step);
}

template <class Gradient, class Weight>
AdamwFunction by_moment(DType moments) {
    if (moments == DType::float32) return adamw<Gradient, Weight, float>;
    if (moments == DType::bfloat16) return adamw<Gradient, Weight, BFloat16>;
    return nullptr;
}

} // namespace

// Narrow gradients are those of narrow weights.
AdamwFunction adamw_function(DType gradients, DType weights, DType moments) {
    if (gradients == DType::bfloat16 && weights == gradients) return by_moment<BFloat16, BFloat16>(moments);
    if (gradients != DType::float32) return nullptr;
    if (weights == DType::float32) return by_moment<float, float>(moments);
    if (weights == DType::bfloat16) return by_moment<float, BFloat16>(moments);
    return nullptr;
}

} // namespace tutti::backend::cpu::TUTTI_ISA

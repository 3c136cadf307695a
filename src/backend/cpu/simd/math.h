// Scalar functions written so that GCC turns loops over them into vector code: no branches, no calls, no tables.
// Accurate to about 2 ulp. Included only by the files of this folder, once per instruction set.
#pragma once

#include "base/dtype.h"

#include <cstdint>

#define TUTTI_INLINE [[gnu::always_inline]] static inline

namespace tutti::backend::cpu::TUTTI_ISA {

TUTTI_INLINE std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
TUTTI_INLINE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Elements are computed in float (16-bit floats) or in their own type. BFloat16's own conversions are not used here:
// an inline function shared with other instruction sets could be the one that the linker keeps for all.
TUTTI_INLINE float load(const float* p) { return *p; }
TUTTI_INLINE float load(const BFloat16* p) { return float_of(static_cast<std::uint32_t>(p->bits) << 16); }
TUTTI_INLINE void store(float* p, float x) { *p = x; }
TUTTI_INLINE void store(BFloat16* p, float x) {
    const std::uint32_t wide = bits_of(x);
    const std::uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
    const std::uint32_t quiet = (wide >> 16) | 0x40; // NaN stays NaN
    p->bits = static_cast<std::uint16_t>((wide & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

TUTTI_INLINE float absolute(float x) { return float_of(bits_of(x) & 0x7fffffff); }
TUTTI_INLINE float with_sign(float magnitude, float sign) {
    return float_of(bits_of(magnitude) | (bits_of(sign) & 0x80000000));
}

// e^x = 2^n e^r with |r| <= ln 2 / 2, by Cephes' polynomial. `shifted` is n + 1.5 * 2^23: adding that much rounds to an
// integer and leaves it in the low bits.
struct Reduced {
    float shifted, power; // power: e^r
};
constexpr float shift_to_integer = 12582912.0f;
TUTTI_INLINE Reduced reduce_exponent(float x) {
    const float shifted = x * 1.44269504088896341f + shift_to_integer;
    const float whole = shifted - shift_to_integer;
    const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return {shifted, p * (r * r) + r + 1.0f};
}

// 2^n is applied in two halves, so that results near the ends of the range, and beyond, come out as they should.
TUTTI_INLINE float exponential(float x) {
    const float low = x < -104.0f ? -104.0f : x; // NaN passes
    const float bounded = low > 89.0f ? 89.0f : low;
    const Reduced e = reduce_exponent(bounded);
    const auto n = static_cast<std::int32_t>(bits_of(e.shifted) - bits_of(shift_to_integer));
    const std::int32_t half = n >> 1;
    const float first = float_of(static_cast<std::uint32_t>(half + 127) << 23);
    const float second = float_of(static_cast<std::uint32_t>(n - half + 127) << 23);
    return e.power * first * second;
}

// The same for x <= 0 (softmax), where one scaling is enough: anything below e^-87 counts as nothing.
TUTTI_INLINE float exponential_of_negative(float x) {
    const float bounded = x < -87.0f ? -87.0f : x;
    const Reduced e = reduce_exponent(bounded);
    const float scaled = e.power * float_of((bits_of(e.shifted) - bits_of(shift_to_integer) + 127) << 23);
    return x < -87.0f ? 0.0f : scaled;
}

TUTTI_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// An odd polynomial near zero (Cephes), else 1 - 2 / (e^2|x| + 1).
TUTTI_INLINE float hyperbolic_tangent(float x) {
    const float magnitude = absolute(x), square = x * x;
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const float near_zero = p * (square * x) + x;
    const float far = with_sign(1.0f - 2.0f / (exponential(2.0f * magnitude) + 1.0f), x);
    return magnitude < 0.625f ? near_zero : far;
}

// Two minimax polynomials after N. Juffa: of erf itself near zero, of log(1 - erf) beyond.
TUTTI_INLINE float error_function(float x) {
    const float t = absolute(x), s = x * x;
    float p = -5.96761703e-4f;
    p = p * s + 4.99119423e-3f;
    p = p * s - 2.67681349e-2f;
    p = p * s + 1.12819925e-1f;
    p = p * s - 3.76125336e-1f;
    p = p * s + 1.28379166e-1f;
    const float near_zero = p * x + x;
    float q = -1.72853470e-5f * t + 3.83197126e-4f;
    q = q * s + (-3.88396438e-3f * t + 2.42546219e-2f);
    q = q * t - 1.06777877e-1f;
    q = q * t - 6.34846687e-1f;
    q = q * t - 1.28717512e-1f;
    q = q * t - t;
    const float far = with_sign(1.0f - exponential(q), x);
    return t > 0.927734375f ? far : near_zero;
}

} // namespace tutti::backend::cpu::TUTTI_ISA

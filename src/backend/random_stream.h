// Which random numbers a kernel draws. The key comes from the run's seed and step, the stream from the node's place in
// the model and the global sample, the element from the kernel: every backend and every layout draws the same.
#pragma once

#include "base/philox.h"
#include "program/step_scalars.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti {

constexpr PhiloxKey key_of(const StepScalars& scalars) {
    const std::uint64_t bits = mix_bits(scalars.seed, static_cast<std::uint64_t>(scalars.step));
    return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}

// `sample` is global: StepScalars::first_sample + Launch::samples_before + the attribute first_sample + the place in
// the micro-batch.
constexpr std::uint64_t stream_of(std::string_view source, std::int64_t sample) {
    return mix_bits(hash_of(source), static_cast<std::uint64_t>(sample));
}

// Dropout: whether the element survives, with probability 1 - p.
constexpr bool keeps(PhiloxKey key, std::uint64_t stream, std::int64_t element, double p) {
    return uniform_from_bits(philox_draw(key, stream, static_cast<std::uint64_t>(element))) >= p;
}

// Stochastic rounding of the bits of a float to those of a bf16: up or down, the nearer the likelier. Takes the low 16
// bits of a random word. What bf16 can represent stays as it is, as does what is not finite.
constexpr std::uint16_t round_stochastically(std::uint32_t bits, std::uint32_t random) {
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u); // NaN
    if (magnitude == 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16);
    return static_cast<std::uint16_t>((bits + (random & 0xFFFFu)) >> 16);
}

// The random words of one element of a stored tensor in one step's update: of the weight, of both moments.
constexpr std::array<std::uint32_t, 4> update_words(PhiloxKey key, std::uint64_t stream, std::int64_t element) {
    const auto place = static_cast<std::uint64_t>(element);
    return philox(key, {static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32),
                        static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
}

} // namespace tutti

// The random numbers of kernels. The key comes from the run's seed and step, the stream from the node's place in the
// model and the global sample, the element from the kernel: every backend and every layout draws the same numbers.
#pragma once

#include "base/philox.h"
#include "program/step_scalars.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::backend {

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

// What an optimizer rounds stochastically; each has random bits of its own.
enum class Rounded : std::uint32_t { weight, moment1, moment2 };

// In one step's update of a stored tensor: sixteen random bits for each of the elements [8 block, 8 block + 8).
constexpr int update_group = 8;
constexpr std::array<std::uint32_t, 4> update_words(PhiloxKey key, std::uint64_t stream, Rounded what,
                                                    std::uint64_t block) {
    const auto high = static_cast<std::uint32_t>(block >> 32) | static_cast<std::uint32_t>(what) << 30;
    return philox(key, {static_cast<std::uint32_t>(block), high, static_cast<std::uint32_t>(stream),
                        static_cast<std::uint32_t>(stream >> 32)});
}
// Those of the element-th of the eight, as the low bits of a word.
constexpr std::uint32_t update_bits(const std::array<std::uint32_t, 4>& words, int element) {
    return words[static_cast<std::size_t>(element / 2)] >> (element % 2 * 16);
}

} // namespace tutti::backend

#include "data/sampler.h"

#include "base/error.h"

#include <algorithm>
#include <bit>

namespace tutti::data {

Sampler::Sampler(std::int64_t samples, std::uint64_t seed, bool ordered) : samples_(samples), ordered_(ordered) {
    TUTTI_CHECK(samples > 0, "{} samples", samples);
    const std::uint64_t mixed = mix_bits(seed, 0x73616D706C657273); // "samplers": apart from other uses of the seed
    key_ = {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
    const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(samples) - 1));
    half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t Sampler::at(std::int64_t counter) const {
    TUTTI_CHECK(counter >= 0, "counter {}", counter);
    const auto place = static_cast<std::uint64_t>(counter % samples_);
    if (ordered_) return static_cast<std::int64_t>(place);
    // Cycle walking: the network permutes a power of four that is less than four times too large; following it until it
    // lands among the samples is a permutation of the samples.
    std::uint64_t value = place;
    do value = permute(value, static_cast<std::uint64_t>(epoch(counter)));
    while (value >= static_cast<std::uint64_t>(samples_));
    return static_cast<std::int64_t>(value);
}

// A balanced Feistel network: invertible whatever the round function, which is Philox.
std::uint64_t Sampler::permute(std::uint64_t value, std::uint64_t epoch) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (std::uint32_t round = 0; round < 6; ++round) {
        const auto words = philox(key_, {static_cast<std::uint32_t>(right), round, static_cast<std::uint32_t>(epoch),
                                         static_cast<std::uint32_t>(epoch >> 32)});
        const std::uint64_t mixed = left ^ (words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits_ | right;
}

} // namespace tutti::data

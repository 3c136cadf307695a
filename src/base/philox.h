// Philox 4x32-10 (Salmon et al., SC'11): counter-based random numbers. The value at (key, counter) is a pure function,
// so neither the layout of a computation nor its order can change what is drawn.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tutti {

struct PhiloxKey {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    bool operator==(const PhiloxKey&) const = default;
};

constexpr std::array<std::uint32_t, 4> philox(PhiloxKey key, std::array<std::uint32_t, 4> counter) {
    constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = multiplier0 * counter[0];
        const std::uint64_t product1 = multiplier1 * counter[2];
        counter = {
            static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key.low, static_cast<std::uint32_t>(product1),
            static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key.high, static_cast<std::uint32_t>(product0)};
        key.low += 0x9E3779B9;
        key.high += 0xBB67AE85;
    }
    return counter;
}

// The element-th 32-bit draw of a stream named by (key, stream).
constexpr std::uint32_t philox_draw(PhiloxKey key, std::uint64_t stream, std::uint64_t element) {
    const std::uint64_t block = element / 4;
    const auto words = philox(key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                    static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
    return words[element % 4];
}

// Uniform in [0, 1): 24 random bits, exact in float.
constexpr float uniform_from_bits(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// A 64-bit mixing of two words (splitmix64's finaliser): for deriving keys and streams from seeds, steps and names.
constexpr std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
    std::uint64_t z = a + 0x9E3779B97F4A7C15ull * (b + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// FNV-1a, 64 bits: what a name is in a stream.
constexpr std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return hash;
}

} // namespace tutti

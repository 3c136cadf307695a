#include "models/initialisation.h"

#include "base/philox.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tutti {
namespace {

// The four normal draws of a Philox block: Box and Muller's transform of its two pairs of words.
std::array<double, 4> normal_block(PhiloxKey key, std::uint64_t stream, std::uint64_t block) {
    const auto words = philox(key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                    static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
    std::array<double, 4> draws{};
    for (std::size_t pair = 0; pair < 4; pair += 2) {
        const double radius = std::sqrt(-2 * std::log((words[pair] + 1.0) * 0x1p-32)); // of a number in (0, 1]
        const double angle = 2 * std::numbers::pi * (words[pair + 1] * 0x1p-32);
        draws[pair] = radius * std::cos(angle);
        draws[pair + 1] = radius * std::sin(angle);
    }
    return draws;
}

} // namespace

void initialise(const Initialisation& how, std::uint64_t seed, std::string_view name, std::int64_t first_element,
                std::span<float> out) {
    const auto first = static_cast<std::uint64_t>(first_element), last = first + out.size();
    if (how.kind == Initialisation::Kind::constant) {
        std::ranges::fill(out, static_cast<float>(how.value));
    } else {
        const std::uint64_t stream = hash_of(name), mixed = mix_bits(seed, stream);
        const PhiloxKey key{static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
        for (std::uint64_t block = first / 4; block * 4 < last; ++block) {
            const std::array<double, 4> draws = normal_block(key, stream, block);
            for (std::uint64_t i = std::max(first, block * 4); i < std::min(last, block * 4 + 4); ++i)
                out[i - first] = static_cast<float>(how.value + how.deviation * draws[i % 4]);
        }
    }
    if (how.zero_row >= 0) {
        const auto row = static_cast<std::uint64_t>(how.zero_row), size = static_cast<std::uint64_t>(how.row_size);
        const std::uint64_t begin = std::clamp(row * size, first, last),
                            end = std::clamp((row + 1) * size, first, last);
        std::ranges::fill(out.subspan(begin - first, end - begin), 0.0f);
    }
}

} // namespace tutti

#include "models/initialisation.h"

#include "models/normal_numbers.h"

#include <algorithm>
#include <array>

namespace tutti::models {

void initialise(const Initialisation& how, std::uint64_t seed, std::string_view name, std::int64_t first_element,
                std::span<float> out) {
    const auto first = static_cast<std::uint64_t>(first_element), last = first + out.size();
    if (how.kind == Initialisation::Kind::constant) {
        std::ranges::fill(out, static_cast<float>(how.value));
    } else {
        const std::uint64_t stream = hash_of(name), mixed = mix_bits(seed, stream);
        const PhiloxKey key{static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
        std::array<double, 1024> draws{};
        for (std::uint64_t at = first; at < last;) {
            const std::uint64_t skipped = at % 4, count = std::min<std::uint64_t>(last - at, draws.size() - skipped);
            normal_numbers(key, stream, at / 4, std::span(draws).first((skipped + count + 3) / 4 * 4));
            for (std::uint64_t i = 0; i < count; ++i)
                out[at - first + i] = static_cast<float>(how.value + how.deviation * draws[skipped + i]);
            at += count;
        }
    }
    if (how.zero_row >= 0) {
        const auto row = static_cast<std::uint64_t>(how.zero_row), size = static_cast<std::uint64_t>(how.row_size);
        const std::uint64_t begin = std::clamp(row * size, first, last),
                            end = std::clamp((row + 1) * size, first, last);
        std::ranges::fill(out.subspan(begin - first, end - begin), 0.0f);
    }
}

} // namespace tutti::models

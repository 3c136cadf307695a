#include "data/masking.h"

#include "base/error.h"
#include "base/philox.h"
#include "data/token_source.h"

#include <algorithm>
#include <array>

namespace tutti::data {
namespace {

// The draws of one position: whether it is chosen, what becomes of it, the random token.
std::array<std::uint32_t, 4> draws(PhiloxKey key, std::int64_t counter, std::size_t position) {
    const auto stream = static_cast<std::uint64_t>(counter);
    return philox(key, {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                        static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
}

std::int64_t replacement(const Masking& masking, std::int64_t token, const std::array<std::uint32_t, 4>& words) {
    const float kind = uniform_from_bits(words[1]);
    if (kind < 0.8f) return masking.mask_token;
    if (kind < 0.9f)
        return static_cast<std::int64_t>((std::uint64_t{words[2]} * static_cast<std::uint64_t>(masking.vocabulary)) >>
                                         32);
    return token;
}

} // namespace

void mask_tokens(const Masking& masking, std::int64_t counter, std::span<std::int64_t> input,
                 std::span<std::int64_t> targets) {
    TUTTI_CHECK(!input.empty() && input.size() == targets.size(), "{} and {}", input.size(), targets.size());
    TUTTI_CHECK(masking.mask_token >= 0 && masking.mask_token < masking.vocabulary && masking.vocabulary <= 1ll << 32,
                "mask {} of {}", masking.mask_token, masking.vocabulary);
    const std::uint64_t mixed = mix_bits(masking.seed, 0x6D61736B); // "mask": apart from other uses of the seed
    const PhiloxKey key{static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};

    const auto hide = [&](std::size_t i, const std::array<std::uint32_t, 4>& words) {
        targets[i] = input[i];
        input[i] = replacement(masking, input[i], words);
    };
    bool any = false;
    std::size_t lowest = 0; // the position that is hidden if none is below the threshold
    std::uint32_t lowest_draw = draws(key, counter, 0)[0];
    for (std::size_t i = 0; i < input.size(); ++i) {
        const auto words = draws(key, counter, i);
        targets[i] = ignored_target;
        if (static_cast<double>(words[0]) < masking.probability * 0x1p32) {
            hide(i, words);
            any = true;
        } else if (words[0] < lowest_draw) {
            lowest = i;
            lowest_draw = words[0];
        }
    }
    if (!any) hide(lowest, draws(key, counter, lowest));
}

} // namespace tutti::data

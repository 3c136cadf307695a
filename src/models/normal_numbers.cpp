#include "models/normal_numbers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

namespace tutti::models {
namespace {

// The value at x of a polynomial, from the highest coefficient to the lowest.
template <class... Coefficients>
double polynomial(double x, double highest, Coefficients... rest) {
    ((highest = highest * x + rest), ...);
    return highest;
}

// ln((word + 1) / 2^32): of a number in (0, 1].
double log_of(std::uint32_t word) {
    constexpr std::uint64_t fraction = (std::uint64_t{1} << 52) - 1;
    const double number = static_cast<double>(static_cast<std::int32_t>(word ^ 0x80000000U)) + 0x1p31 + 1;
    // number = 2^exponent m, with m in [0.75, 1.5).
    constexpr auto least = std::bit_cast<std::uint64_t>(0.75);
    const std::uint64_t above = std::bit_cast<std::uint64_t>(number) - least;
    const double exponent = std::bit_cast<double>((above >> 52) | std::bit_cast<std::uint64_t>(0x1p52)) - 0x1p52;
    const double m = std::bit_cast<double>((above & fraction) + least);
    const double f = (m - 1) / (m + 1), squared = f * f; // ln m = 2 (f + f^3 / 3 + f^5 / 5 + ...)
    const double series = polynomial(squared, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                                     1.0 / 7, 1.0 / 5, 1.0 / 3);
    return (exponent - 32) * std::numbers::ln2 + 2 * (f + f * squared * series);
}

double with_sign(double value, std::uint32_t negative) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ (static_cast<std::uint64_t>(negative) << 63));
}

struct Direction {
    double cosine, sine;
};

// Of the angle 2 pi word / 2^32: Taylor's series at the nearest of four quarters.
Direction direction_of(std::uint32_t word) {
    const std::uint32_t quarter = (word + (1U << 29)) >> 30;
    const double t = static_cast<double>(static_cast<std::int32_t>(word - (quarter << 30))) *
                     (2 * std::numbers::pi * 0x1p-32); // from -pi / 4 to pi / 4
    const double squared = t * t;
    const double sine = t + t * squared *
                                polynomial(squared, 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                                           -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
    const double cosine = polynomial(squared, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
                                     1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2, 1.0);
    const bool odd = (quarter & 1) != 0;
    return {with_sign(odd ? sine : cosine, (quarter + 1) >> 1 & 1), with_sign(odd ? cosine : sine, quarter >> 1 & 1)};
}

constexpr std::size_t pairs = 64; // at a time

} // namespace

void normal_numbers(PhiloxKey key, std::uint64_t stream, std::uint64_t block, std::span<double> out) {
    std::array<std::uint32_t, pairs> lengths{}, angles{};
    std::array<double, pairs> cosines{}, sines{};
    while (out.size() >= 4) {
        const std::size_t count = std::min(pairs, out.size() / 4 * 2);
        for (std::size_t i = 0; i < count; i += 2, ++block) {
            const auto words =
                philox(key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                             static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
            lengths[i] = words[0], angles[i] = words[1];
            lengths[i + 1] = words[2], angles[i + 1] = words[3];
        }
        for (std::size_t i = 0; i < pairs; ++i) {
            const double length = std::sqrt(-2 * log_of(lengths[i]));
            const Direction direction = direction_of(angles[i]);
            cosines[i] = length * direction.cosine;
            sines[i] = length * direction.sine;
        }
        for (std::size_t i = 0; i < count; ++i) out[2 * i] = cosines[i], out[2 * i + 1] = sines[i];
        out = out.subspan(2 * count);
    }
}

} // namespace tutti::models

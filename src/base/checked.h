// Integer arithmetic that fails instead of wrapping: for every number that comes from outside.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace tutti {

template <std::integral T>
std::optional<T> checked_multiply(T a, T b) {
    T result;
    if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
    return result;
}

template <std::integral T>
std::optional<T> checked_add(T a, T b) {
    T result;
    if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
    return result;
}

template <std::integral To, std::integral From>
To narrow(From value) {
    TUTTI_CHECK(std::in_range<To>(value), "{} does not fit", value);
    return static_cast<To>(value);
}

inline std::int64_t divide_exactly(std::int64_t a, std::int64_t b) {
    TUTTI_CHECK(b != 0 && a % b == 0, "{} is not a multiple of {}", a, b);
    return a / b;
}

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// The nearest int: what a check would refuse it still refuses.
constexpr int clamp_to_int(std::int64_t value) {
    return static_cast<int>(
        std::clamp<std::int64_t>(value, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

} // namespace tutti

// Limits of the numbers in files, so that computing with them cannot overflow.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tutti {

struct Limits {
    double least = 0, most = 0;

    bool hold(double value) const { return value >= least && value <= most; } // no number is not held
    std::string text() const { return fmt::format("from {} to {}", least, most); }
    Limits or_zero() const { return {0, most}; }
};

namespace limits {

constexpr Limits duration{1e-12, 1e9}; // seconds: up to thirty years
constexpr Limits rate{1, 1e18};        // bytes per second
constexpr Limits flops{1, 1e21};       // in a second, or of a kernel
constexpr Limits factor{0.001, 1000};  // times as long
constexpr Limits share{0.001, 1};
constexpr Limits cost{0, 1e18};             // of a task in any unit: seconds, bytes
constexpr std::int64_t bytes = 1ll << 50;   // at most
constexpr std::int64_t steps = 1ll << 40;   // of a run
constexpr std::int64_t samples = 1ll << 60; // of all steps: a step more stays within 63 bits

} // namespace limits
} // namespace tutti

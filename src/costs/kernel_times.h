// KernelTimes: seconds of the kernels of a program, as timed on a device (profiling/kernel_timing.h). The key is all
// that a kernel's time depends on, so any program with the same kernels can be predicted.
#pragma once

#include "program/program.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::costs {

// Whether a kernel's key says which operands are likely to be in a cache (Argument::likely_cached).
enum class CacheSensitivity : std::uint8_t { sensitive, insensitive };

// Operator, attributes, types and strides of the operands, whether it adds to its outputs.
std::string kernel_key(const Instruction& instruction, bool accumulate,
                       CacheSensitivity sensitivity = CacheSensitivity::sensitive);

struct KernelTimes {
    std::map<std::string, double> seconds{};

    // Nothing where such a kernel was not timed.
    std::optional<double> of(const Instruction& instruction, bool accumulate) const;
    bool operator==(const KernelTimes&) const = default;
};

std::string to_text(const KernelTimes& times);
KernelTimes parse_kernel_times(std::string_view text); // of this program's own making

// The timings of several ranks, pooled: the mean of every kernel, and for every rank its slowdown: how much longer than
// the mean its kernels took.
struct PooledTimes {
    KernelTimes times{};
    std::vector<double> slowdowns{};
};
PooledTimes pooled(std::span<const KernelTimes> ranks);

} // namespace tutti::costs

// KernelTimes: how long the kernels of programs take on a device, as timed there (profiling/kernel_timing.h). A plain
// value, looked up by all that a kernel's time depends on; a program that has the same kernels can be predicted by it.
#pragma once

#include "program/program.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::costs {

// Whether operands that are near are told apart from others.
enum class Nearness : std::uint8_t { counts, any };

// Operator, attributes, types and strides of the operands, whether it adds to its outputs.
std::string kernel_key(const Instruction& instruction, bool accumulate, Nearness nearness = Nearness::counts);

struct KernelTimes {
    std::map<std::string, double> seconds{};

    // Nothing where such a kernel was not timed.
    std::optional<double> of(const Instruction& instruction, bool accumulate) const;
    bool operator==(const KernelTimes&) const = default;
};

std::string to_text(const KernelTimes& times);
KernelTimes parse_kernel_times(std::string_view text); // of this program's own making

// What several ranks timed, taken together: the mean for every kernel, and for every rank how much longer than that its
// kernels took.
struct PooledTimes {
    KernelTimes times{};
    std::vector<double> paces{};
};
PooledTimes pooled(std::span<const KernelTimes> ranks);

} // namespace tutti::costs

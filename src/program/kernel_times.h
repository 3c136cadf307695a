// KernelTimes: how long the kernels of programs take on a device, as timed there (runtime/kernel_timing.h). A plain
// value, looked up by all that a kernel's time depends on; a program that has the same kernels can be predicted by it.
#pragma once

#include "program/program.h"

#include <map>
#include <optional>
#include <string>

namespace tutti {

// Operator, attributes, types and strides of the operands, whether it adds to its outputs; operands that lie in the
// memory of a task ("near"), so that they are likely to be in a cache, are told apart from others.
std::string kernel_key(const Instruction& instruction, bool accumulate);

struct KernelTimes {
    std::map<std::string, double> seconds{};

    // Nothing where such a kernel was not timed.
    std::optional<double> of(const Instruction& instruction, bool accumulate) const;
    bool operator==(const KernelTimes&) const = default;
};

} // namespace tutti

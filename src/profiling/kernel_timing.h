// Times the kernels of a program on its device: each distinct one, in memory of its own, while the other ranks do the
// same. Cores of one machine share clocks, caches and the way to memory, so a kernel timed alone is too fast.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "costs/kernel_times.h"

#include <map>
#include <span>
#include <string>

namespace tutti::profiling {

// What is touched once in so much memory comes from there, and from no cache of a host.
constexpr Bytes beyond_caches{std::int64_t{64} << 20};

// A kernel that is to be timed, in one of its two forms.
struct KernelWish {
    const Instruction* instruction = nullptr;
    bool accumulate = false;
};
struct TimedKernels {
    costs::KernelTimes times{};
    std::map<std::string, Bytes> workspace{}; // by key, too
};

// These, each once; `apart`: how much memory kernels of a step touch before they come back to the same. All ranks wish
// for as many. On a device that works beside the host they are timed in the midst of what is wished for, in that order:
// so that is best all of a step.
TimedKernels time_kernels(std::span<const KernelWish> wishes, const backend::Device& device, comm::Group& all,
                          Bytes apart, Seconds lasting, Bytes most_memory = {std::int64_t{512} << 20});

// Those of a program's step. On every rank of `all`. Takes about `lasting`; less where fifty rounds of all kernels do,
// and more where three don't. Kernels whose operands take more than `most_memory`, or an eighth of what a device has
// free, are left out.
costs::KernelTimes time_kernels(const Program& program, const backend::Device& device, comm::Group& all,
                                Seconds lasting = {1.0}, Bytes most_memory = {std::int64_t{512} << 20});

} // namespace tutti::profiling

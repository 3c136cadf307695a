// Times the kernels of a program on its device: each distinct one, in memory of its own, while the other ranks do the
// same. Cores of one machine share clocks, caches and the way to memory, so a kernel timed alone is too fast.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "costs/kernel_times.h"

#include <functional>
#include <map>
#include <span>
#include <string>

namespace tutti::profiling {

// An operand that is touched once per this much memory comes from memory, not from a cache of the host.
constexpr Bytes beyond_caches{std::int64_t{64} << 20};

// A kernel to be timed, as it overwrites its outputs or as it adds to them.
struct TimingRequest {
    const Instruction* instruction = nullptr;
    bool accumulate = false;
};
struct TimedKernels {
    costs::KernelTimes times{};
    std::map<std::string, Bytes> workspace{}; // by key, too
};

// Hears how many of so many kernels have had their turn, again and again: a round may take long where others compute.
using TimingListener = std::function<void(std::size_t timed, std::size_t all)>;

// Times each of these kernels once. `apart`: how much memory the kernels of a step touch before they come back to the
// same memory. All ranks request equally many. On a device that works beside the host, each kernel is timed among the
// others, in the given order; so it is best to request those of a whole step.
TimedKernels time_kernels(std::span<const TimingRequest> requests, const backend::Device& device, comm::Group& all,
                          Bytes apart, Seconds lasting, Bytes most_memory = {std::int64_t{512} << 20},
                          const TimingListener& listener = {});

// Those of a program's step. On every rank of `all`. Takes about `lasting`; less where fifty rounds of all kernels do,
// and more where three don't. Kernels whose operands take more than `most_memory`, or an eighth of what a device has
// free, are left out.
costs::KernelTimes time_kernels(const Program& program, const backend::Device& device, comm::Group& all,
                                Seconds lasting = {1.0}, Bytes most_memory = {std::int64_t{512} << 20});

} // namespace tutti::profiling

// KernelBench: the kernels of a step, prepared for timing, with their own memory and queue.
#pragma once

#include "backend/device.h"
#include "profiling/kernel_timing.h"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::profiling {

// Where an operand lies while a kernel is timed. An operand that is likely to be in a cache is always in the same
// place; any other comes from a new place every time, as weights and stashes do. Operands that are only read are never
// written, so that numbers keep a usual size (some kernels are quicker for zeros, and slower for tiny numbers);
// integers stay zeros, which are valid rows of every table.
enum class TimingPlace : std::uint8_t { cached_read, cached_written, uncached_read, uncached_written, zeros };
constexpr std::size_t timing_places = 5;

struct PlacedOperand {
    TimingPlace place = TimingPlace::cached_read;
    std::int64_t offset = 0;
};

struct TimedKernel {
    std::string key;
    std::unique_ptr<backend::Kernel> kernel{};
    std::vector<PlacedOperand> inputs{}, outputs{};
    std::array<std::int64_t, timing_places> sizes{};
    std::vector<double> samples{};
};

struct TimedStep {
    std::vector<TimedKernel> kernels{};
    std::vector<std::size_t> order{}; // in which a step has them, each as often as it does
};

// Kernels whose operands take more than `most_memory` are left out.
TimedStep prepare_timing(std::span<const TimingRequest> requests, const backend::Device& device, Bytes most_memory);

class KernelBench {
  public:
    // `apart`: how much memory kernels of a step touch before they come back to the same; less where operands and this
    // take more than `room`.
    KernelBench(std::span<const TimedKernel> kernels, const backend::Device& device, Bytes apart, Bytes room);

    backend::Queue& queue() { return *queue_; }
    void reset_scalars();
    void run(const TimedKernel& one);
    double time(const TimedKernel& one); // seconds

  private:
    void fill(const backend::Arena& arena, bool numbers) const;
    void bind(const TimedKernel& one);

    const backend::Device& device_;
    std::unique_ptr<backend::Queue> queue_;
    std::array<std::unique_ptr<backend::Arena>, timing_places> memory_;
    std::unique_ptr<backend::Arena> workspace_, scalars_;
    std::array<std::int64_t, timing_places> begin_{}, end_{}; // of what the kernel at hand has of each
    std::vector<const std::byte*> inputs_;
    std::vector<std::byte*> outputs_;
};

} // namespace tutti::profiling

// StepTiming: times kernels on a device that works beside the host.
//
// Kernels are given to the device as in training: recorded, so that the host's time does not count, and close together.
// How fast they are depends on what the device has done just before: at its limit of power, or with caches full of
// something else, matmuls take up to a quarter longer. So a row of one kernel is timed right behind a piece of the
// step; and what the rows of a step's kernels take together is compared with the time of the step.
#pragma once

#include "profiling/kernel_bench.h"

#include <functional>

namespace tutti::profiling {

class StepTiming {
  public:
    // Takes until the device is as slow as it will be. Both are kept by reference.
    StepTiming(TimedStep& step, KernelBench& bench);

    void round();                 // times every kernel once more
    std::vector<double> result(); // seconds, per kernel

  private:
    struct Recorded {
        std::vector<std::size_t> kernels{};
        std::unique_ptr<backend::Recording> recording = nullptr;
    };

    Recorded recorded(std::vector<std::size_t> kernels);
    void run(std::span<const std::size_t> kernels);
    void give(const Recorded& one);
    void give_piece();
    void heat();
    double time_step();
    double time(const std::function<void()>& work);

    TimedStep& step_;
    KernelBench& bench_;
    std::vector<Recorded> rows_; // of every kernel
    std::vector<Recorded> pieces_;
    std::size_t next_ = 0;
    std::vector<double> steps_;
};

} // namespace tutti::profiling

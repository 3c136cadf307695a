// MeasuringCost: a profile that grows. A kernel that it lacks is timed when a planner first asks for it, on all ranks
// at once, since a kernel that is timed alone is too fast. Every rank has such a profile, and all ask for the same
// kernels in the same order, because the search is deterministic.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "costs/profile.h"
#include "profiling/kernel_timing.h"

#include <functional>
#include <string>

namespace tutti::profiling {

struct MeasuringOptions {
    Bytes apart{};             // memory that kernels of a step touch before they come back to the same
    Seconds lasting{0.01};     // for each kernel
    Seconds most_at_once{2.0}; // for those of one program
    Bytes most_memory{};       // that a kernel may take; 0: as the device has it
    std::function<void(const std::string&)> tell{}; // what is being timed, a few times a second
};

class MeasuringCost : public costs::MeasuredCost {
  public:
    // All ranks have the same profile. Device and world are kept by reference.
    MeasuringCost(costs::CostProfile profile, const backend::Device& device, comm::World& world,
                  const MeasuringOptions& options);

    void expect(const Program& program) const override;
    std::size_t measured() const { return measured_; } // kernels, by this

  private:
    TimingListener listener() const;
    bool is_known(const Instruction& instruction, bool accumulate) const;

    const backend::Device& device_;
    comm::World& world_;
    MeasuringOptions options_;
    // A device that works beside the host is slower or faster by what it has done before, more than by what lies near.
    // So its kernels are timed once, in the first program that has them: that of a whole step.
    costs::CacheSensitivity sensitivity_;
    mutable std::size_t measured_ = 0;
};

} // namespace tutti::profiling

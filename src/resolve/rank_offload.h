// Offloading decisions that the ranks of a run take together: how much host memory each may take, and the common error
// if a device is too small.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "compile/compile.h"
#include "offload/offload_plan.h"

#include <optional>

namespace tutti::resolve {

struct RankOffload { // of one rank
    const compile::Compiled& compiled;
    const Program* evaluation; // null: none
    const Plan& plan;
    const backend::Device& device;
    Bytes scratch; // of the device's memory, beside chunks
    bool has_disk;
    bool fits; // its model data fits its device, while another rank's does not
};

// None where it fits. Error, the same on all, with the least device memory that works. `decided`: training, which is
// then not planned again; null: nothing is.
std::optional<offload::OffloadPlan> plan_with_others(const RankOffload& rank, comm::World& world,
                                                     const offload::OffloadSpeed& speed,
                                                     const offload::OffloadPlan* decided = nullptr);

} // namespace tutti::resolve

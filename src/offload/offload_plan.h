// plan_offload: for a run whose model data is more than its device may hold, decides before anything is allocated which
// chunks stay on the device, where the others have their backing tier, and who updates them.
//
// The optimizer's states of a chunk are many times its weights and used once in a step. So where they do not stay, its
// update may be done where they are at home, by the host: gradients go there, new weights come back when they are next
// used, and the host works beneath the next forward. How many chunks are updated so is what makes the step shortest.
#pragma once

#include "base/error.h"
#include "offload/home_plan.h"
#include "offload/moments.h"
#include "offload/offload_speed.h"

#include <functional>
#include <optional>
#include <string>

namespace tutti::offload {

struct OffloadLimits {
    Bytes device{};        // for chunks
    Bytes host{};          // for homes
    Bytes free{};          // of host memory; a plan that needs more is taken only where there is no other
    bool has_disk = false; // for homes that are more than this
    OptimizerPlacement placement = OptimizerPlacement::automatic;
    Eviction eviction = Eviction::farthest_use;
    bool prefetch = true;
    UpdateTime updates = UpdateTime::automatic;
    // Chunks that only the device may update: such as other ranks own and update, too, who may decide otherwise.
    std::function<bool(std::int32_t chunk)> only_on_device{};
};

struct OffloadPlan {
    struct Part { // of training, of evaluation
        StepMoments step;
        ResidencyPlan residency;
    };
    Part training;
    std::optional<Part> evaluation{};
    HomePlan homes{};
    std::int32_t updates = 0;                 // chunks that are updated
    std::vector<std::int32_t> host_updates{}; // those of them that the host updates
    bool later_updates = false;               // the device does its own in the next step, where that is possible:
    std::int32_t updates_later = 0;           // so many, right before their weights are read
    Bytes always{};                           // at the start of the device memory: chunks that never leave it
    Bytes device{};                           // memory for chunks
    std::optional<CopySpeed> timed_disk{};
    double host_update_bytes = 0; // operands per second, as timed
};

// Of a disk that was not timed.
constexpr CopySpeed usual_disk{.latency = 1e-3, .in = 1e9, .out = 1e9, .together = 1};

// A moment needs more of the device than the limits give.
struct DeviceTooSmall : Error {
    explicit DeviceTooSmall(Bytes enough_for_chunks)
        : Error("the device has too little memory"), enough(enough_for_chunks) {}
    Bytes enough; // would do, for chunks
};

// DeviceTooSmall, or Error where homes have too little room. The steps of the plan are those of `training` with its
// updates where the plan wants them (program/update_places.h).
OffloadPlan plan_offload(Program training, const Program* evaluation, const OffloadLimits& limits,
                         const OffloadSpeed& speed);
// Adds the evaluation to a plan that has none.
void plan_evaluation(OffloadPlan& plan, const Program& evaluation, const OffloadLimits& limits,
                     const OffloadSpeed& speed);
// Fills in what follows of the device's memory.
void sum_up(OffloadPlan& plan);
// Whether a chunk never leaves the device in training.
bool is_always_there(const OffloadPlan& plan, const ChunkResident& resident);

// A sentence where the disk with this folder takes longer for its part of a step than the computing does.
std::optional<std::string> slow_disk(const OffloadPlan& plan, const std::string& folder);

} // namespace tutti::offload

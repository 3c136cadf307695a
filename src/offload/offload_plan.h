// plan_offload: for a run with more model data than its device may hold. Before anything is allocated, it decides which
// chunks stay on the device, which tier backs the others, and who updates them.
//
// A chunk's optimizer states are several times the size of its weights, and a step uses them once. If they are
// offloaded, the host may update the chunk in host memory (as ZeRO-Offload does): gradients are copied to the host, new
// weights are fetched before their next use, and the host works during the next forward. As many chunks are updated by
// the host as make the step shortest.
#pragma once

#include "base/error.h"
#include "offload/backing_plan.h"
#include "offload/offload_speed.h"
#include "offload/time_points.h"

#include <functional>
#include <optional>
#include <string>

namespace tutti::offload {

struct OffloadLimits {
    Bytes device{};        // for chunks
    Bytes host{};          // for backing
    Bytes free{};          // of host memory; a plan that needs more is taken only where there is no other
    bool has_disk = false; // for backing beyond `host`
    OptimizerPlacement placement = OptimizerPlacement::automatic;
    Eviction eviction = Eviction::farthest_use;
    bool prefetch = true;
    UpdateTime updates = UpdateTime::automatic;
    // Chunks that only the device may update: other ranks own and update them, too, and might decide otherwise.
    std::function<bool(std::int32_t chunk)> only_on_device{};
};

struct OffloadPlan {
    struct Part { // of training, of evaluation
        StepTimePoints step;
        ResidencyPlan residency;
    };
    Part training;
    std::optional<Part> evaluation{};
    BackingPlan backing{};
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

// A time point needs more device memory than the limits give.
struct DeviceTooSmall : Error {
    explicit DeviceTooSmall(Bytes enough_for_chunks)
        : Error("the device has too little memory"), enough(enough_for_chunks) {}
    Bytes enough; // device memory for chunks that would do
};

// DeviceTooSmall; or Error if host memory and disk are too small for the rest. The plan's steps are those of `training`
// with its updates moved to where the plan wants them (program/update_places.h).
OffloadPlan plan_offload(Program training, const Program* evaluation, const OffloadLimits& limits,
                         const OffloadSpeed& speed);
// Adds the evaluation to a plan that has none.
void plan_evaluation(OffloadPlan& plan, const Program& evaluation, const OffloadLimits& limits,
                     const OffloadSpeed& speed);
// Fills in how much device memory the plan takes.
void sum_up(OffloadPlan& plan);
// Whether a chunk never leaves the device in training.
bool is_always_there(const OffloadPlan& plan, const ChunkResident& resident);

// A warning, as a sentence, if the disk of this folder takes longer for its part of a step than the computation does;
// else empty.
std::optional<std::string> slow_disk(const OffloadPlan& plan, const std::string& folder);

} // namespace tutti::offload

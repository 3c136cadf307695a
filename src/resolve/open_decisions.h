// Resolving a plan: the one step between a plan that leaves things open and one that is complete. What depends on the
// machine is decided here, with all ranks of the run together:
//
//   fusion         how many rows of logits the fused head computes at a time, by the device's memory
//   residency      which model data is on the device when, what backs it, and who updates it, by timed speeds
//   timed kernels  which algorithms of matrix products and attention were the fastest
//
// Everything is recorded in the plan. A complete plan is followed as it is: nothing is timed, and the same programs
// come out on every machine that can run it.
#pragma once

#include "profiling/offload_timing.h"
#include "resolve/prepared_rank.h"
#include "run/listener.h"

#include <functional>
#include <string>
#include <vector>

namespace tutti::resolve {

struct ResolvedRank {
    Plan plan; // complete, and the same on all ranks
    PreparedRank prepared;
    std::vector<std::string> decided; // sentences about what was open, and about how kernels run where they have ways
};

struct OpenDecisions {
    const RankMachine& machine;
    fs::path disk{}; // folder for model data that a disk backs, or none
    // Timed only where it is needed, and once; by all ranks at once. `room`: about the most memory that it may take.
    std::function<profiling::OffloadTiming&(DType compute, Bytes room)> timing;
    run::TrainListener& listener;
    bool times_steps = false; // also where the plan is complete: a picture of the step is to be drawn
};

// All ranks call it with the same plan. Error, the same on all, where the device is too small, or where what was
// decided before does not fit the model.
ResolvedRank resolve_plan(Plan plan, const OpenDecisions& open);

} // namespace tutti::resolve

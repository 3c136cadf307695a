// The pipeline of a plan that is made by hand: the cuts into stages, the schedule, activation recomputation and
// activation offloading.
#pragma once

#include "graph/graph.h"
#include "plan/plan.h"
#include "run/run_config.h"

#include <optional>

namespace tutti::resolve {

struct OffloadChoice {
    run::ActivationOffload kind = run::ActivationOffload::none;
    double copies = 0, flops = 0; // per second: bytes between host and device, each way; of matmuls on the device
};

// Fills cuts, schedule, recompute and offload. `asked`: what was asked of the schedule; none: one stage. `memory`: what
// a rank may use, for recomputing no more than it asks for.
void plan_pipeline(Plan& plan, const Graph& forward, const std::optional<schedule::ScheduleParameters>& asked,
                   const run::RecomputeAmount& recompute, Bytes memory, const OffloadChoice& offload = {});

} // namespace tutti::resolve

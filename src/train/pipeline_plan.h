// The pipeline of a plan that is made by hand: where the model is cut, in which order stages take their turns, and what
// they compute again in the backward.
#pragma once

#include "graph/graph.h"
#include "plan/plan.h"
#include "train/run_config.h"

#include <optional>

namespace tutti {

// Fills cuts, schedule and recompute. `asked`: what was asked of the schedule; none: one stage. `memory`: what a rank
// may use, for recomputing no more than it asks for.
void plan_pipeline(Plan& plan, const Graph& forward, const std::optional<ScheduleParameters>& asked,
                   const RecomputeAmount& recompute, Bytes memory);

} // namespace tutti

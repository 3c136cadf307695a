// The planner's prediction of a given plan: that of a file, or a run's own.
#pragma once

#include "planner/evaluate/plan_model.h"

namespace tutti::planner {

// The plan in the planner's words: the way back from plan_of. Without devices it has the usual layout. Error where
// there are no words for it: activations that leave the device, a limit of memory that no search sets, devices that the
// cluster has not.
PlanDecisions decisions_of(PlanModel& model, const Plan& plan);

// With the plan's own order of tasks. Searches tell of what they found as this says it, so that a plan's file is
// evaluated to the same.
PlanCost predict(PlanModel& model, const Plan& plan);

Prediction prediction_of(const PlanCost& cost);

// Bytes of every rank of the mesh, not of pipeline ranks alone.
std::vector<Bytes> rank_memory(const PlanCost& cost, const sharding::Mesh& mesh);

} // namespace tutti::planner

// What the planner's model says of a plan that is there already: a file, or a run's own.
#pragma once

#include "planner/plan_model.h"

namespace tutti {

// The plan in the planner's words, with the usual layout. Error where the model has no words for it: model data that
// comes and goes, or more ranks than the cluster has.
PlanPoint point_of(const PlanModel& model, const Plan& plan);

// With the plan's own order of tasks.
PlanCost predict(PlanModel& model, const Plan& plan);

Prediction prediction_of(const PlanCost& cost);

// Bytes of every rank of the mesh, not of pipeline ranks alone.
std::vector<Bytes> rank_memory(const PlanCost& cost, const Mesh& mesh);

} // namespace tutti

// The activation memory of a rank over the time of a step: the slots that are taken, and the running task's transient
// memory. A rank's memory has room for the most slots of every kind at once, so this never exceeds
// RankBytes::activations.
#pragma once

#include "planner/evaluate/plan_model.h"

namespace tutti::planner {

struct HeldFrom {
    double time = 0, bytes = 0; // from then on
    bool operator==(const HeldFrom&) const = default;
};

// Per pipeline rank, by rising time, from 0 on. The evaluation must be that of the schedule.
std::vector<std::vector<HeldFrom>> activations_held(PlanModel& model, const PlanDecisions& decisions,
                                                    const schedule::Schedule& schedule,
                                                    const schedule::Evaluation& evaluation);

} // namespace tutti::planner

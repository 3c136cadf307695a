// What a rank holds of activations as a step goes on, from the same slots that its memory is counted with: those that
// are taken, and what the running task has within. Memory has room for the most of every kind of slot at once, so this
// is never more than RankBytes::activations.
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

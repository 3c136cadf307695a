// The costs that a schedule is evaluated with: durations in any one unit, activations in any one unit.
#pragma once

#include "schedule/parameters.h"

#include <vector>

namespace tutti::schedule {

// One stage, one micro-batch.
struct StageCosts {
    double forward = 1;
    double backward = 1;        // input gradient
    double weight_gradient = 1; // a fused backward takes both
    double recompute = 0;
    double activation = 1;          // from the forward (or the recompute) to the end of the backward
    double kept_after_backward = 1; // of these, what only the weight gradient lets go
    double boundary = 0; // instead from a forward of which some is recomputed: the stage's input, and what blocks that
                         // are not recomputed keep; a part of the above
    double synchronise = 0; // gradients with other data and model replicas; once a step
    double update = 0;      // optimizer; once a step

    bool operator==(const StageCosts&) const = default;
};

struct Costs {
    std::vector<StageCosts> stages; // S of them
    // What a message between stage s and s+1 takes, either way; nothing where both are on one rank. One number for all,
    // S-1 numbers, or S-1 for each replica.
    std::vector<double> communication{0};
    // Blocking: a message keeps its sender from computing. Else it only arrives that much later.
    bool blocking = false;

    double edge(int replica, int stage) const; // between stage and stage + 1
    bool operator==(const Costs&) const = default;
};

// Equal stages. `share` is what a rank's whole share costs for one micro-batch; each of its V stages costs 1/V of it.
Costs uniform_costs(const ScheduleParameters& resolved, const StageCosts& share, double communication = 0);

// Error where a cost is negative or no number, or there are not as many as stages.
void check(const Costs& costs, const ScheduleParameters& resolved);

} // namespace tutti::schedule

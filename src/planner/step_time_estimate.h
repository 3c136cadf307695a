// StepTimeEstimator: the step time that a scaling may reach with a schedule, before anything is split or put in order:
// work, the schedule's idle time with equal stages, the recomputation that memory enforces, communication that cannot
// be hidden, and the update. Estimates order the search and tell what is not worth compiling; they are no bounds.
#pragma once

#include "planner/scaling.h"

namespace tutti::planner {

class StepTimeEstimator {
  public:
    StepTimeEstimator(PlanModel& model, const ScalingCandidate& candidate, const PlacedRanks& placed);

    // One for each ZeRO level that differs where so many ranks share.
    std::vector<StepTimeEstimate> estimates(const schedule::ScheduleParameters& parameters) const;

  private:
    double recomputing(const ScheduleTraits& traits, Zero zero) const;
    double exposed(const ScheduleTraits& traits, Zero zero) const;

    PlanModel& model_;
    const ScalingCandidate& candidate_;
    double micro_batches_, ranks_;
    double stash_ = 0, forward_ = 0;      // of one micro-batch through the whole model
    double elements_ = 0;                 // of a stage
    double room_ = 0;                     // of the largest device
    double contention_ = 1;               // the slowdown of a kernel by communication beside it
    double reducing_ = 0, gathering_ = 0; // of a step: every micro-batch's gradients, and its weights, twice
};

} // namespace tutti::planner

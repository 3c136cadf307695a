// Outlook: what a scaling may reach with a schedule, before anything is split or put in order: its work, the schedule's
// idle time with equal stages, what memory would have it recompute, exchanges that cannot hide, the update. It orders
// the search and tells what is not worth compiling; it is no bound.
#pragma once

#include "planner/scaling.h"

namespace tutti::planner {

class Outlook {
  public:
    Outlook(PlanModel& model, const ScalingCandidate& candidate, const LaidOut& out);

    Promises promises(const schedule::ScheduleParameters& parameters) const;

  private:
    double recomputing(const ScheduleTraits& traits, Zero zero) const;
    double exposed(const ScheduleTraits& traits, Zero zero) const;

    PlanModel& model_;
    const ScalingCandidate& candidate_;
    double micro_batches_, ranks_;
    double stash_ = 0, forward_ = 0;    // of one micro-batch through the whole model
    double elements_ = 0;               // of a stage
    double room_ = 0;                   // of the largest device
    double contention_ = 1;             // what an exchange beside it adds to a kernel
    std::array<double, 4> exchanges_{}; // by ZeRO level: those of a step that micro-batches wait for
};

} // namespace tutti::planner

// The plan that a run asks for: the one that it follows, or one made of the config. It may leave open what
// resolve/open_decisions.h decides.
#pragma once

#include "plan/plan.h"
#include "train/session/opened_run.h"
#include "train/session/timing_once.h"

namespace tutti::train {

// `model`: for one micro-batch of the config. `before`: the plan of the run that goes on, or null. All ranks call it.
Plan requested_plan(const run::RunConfig& config, const OpenedRun& opened, const models::Model& model,
                    TimingOnce& timing, const Plan* before);

} // namespace tutti::train

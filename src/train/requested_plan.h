// The plan that a run asks for: the given one, a file's, or one made of the config. It may leave open what
// resolve/open_decisions.h decides.
#pragma once

#include "plan/plan.h"
#include "train/opened_run.h"
#include "train/timing_once.h"

namespace tutti::train {

// `model`: for one micro-batch of the config. `given`: null where the config or its plan file decides.
Plan requested_plan(const run::RunConfig& config, const OpenedRun& opened, const models::Model& model,
                    const Plan* given, TimingOnce& timing);

} // namespace tutti::train

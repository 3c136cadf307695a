// Finds the first tensor that is not finite in a step that is not.
#pragma once

#include "train/session/session.h"

#include <string>

namespace tutti::train {

// Probe run: repeats the step without its update and inspects what each instruction of this rank writes. "the first bad
// tensor is the output of linear at h.3.mlp, in the forward of micro-batch 0"; empty where it finds none.
std::string find_non_finite(Session& session, StepScalars scalars, const runtime::Executor::Load& load);

} // namespace tutti::train

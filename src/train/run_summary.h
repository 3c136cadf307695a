// The summary of a run that is shown before its first step.
#pragma once

#include "train/session/session.h"

namespace tutti::train {

// All ranks call it. Steps are counted by the caller.
run::RunSummary summary_of(const Session& session, comm::Group& group);

} // namespace tutti::train

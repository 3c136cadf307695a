// config.toml of a run's folder: the settings of the run, and not of one start of it. From any folder,
// tutti train --config RUN/config.toml --resume goes on with them to the end.
#pragma once

#include "run/run_config.h"

#include <string>

namespace tutti::run {

// What followed from the ranks is left to follow again, so that another mesh can be given with it; so is what the
// planner chose (`chosen`). What a plan decides that the run follows stands in the plan.json beside it alone. Paths are
// absolute.
std::string kept_config(const RunConfig& resolved, const RunConfig& asked, bool chosen);

} // namespace tutti::run

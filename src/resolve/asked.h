// From what was given to the config of a run: a config file, flags over it, a plan that both have to agree with, and
// the ranks there are.
#pragma once

#include "plan/plan.h"
#include "run/layout.h"
#include "run/run_config.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti::resolve {

struct GivenOptions {
    std::optional<std::string> config;               // a TOML file
    std::vector<std::optional<std::string>> flags{}; // the text of each of run_options()
};

struct AskedRun {
    run::RunConfig config;
    std::optional<Plan> plan{}; // that the run follows; what it decides is in the config
};

// What was asked for: nothing is derived, and nothing checked but config file and plan, which are all that is read.
AskedRun asked_run(const GivenOptions& given);
// With what follows from it. `started`: see with_layout. `chosen`: how the batch is divided is left to the planner.
// Error where something does not fit.
run::RunConfig resolve_run(const run::RunConfig& asked, int started, bool chosen = false);

// The option that leaves nothing of the layout to a planner: a mesh, a schedule or anything else of a layout that it
// would have to follow, and does not. Empty: none does.
std::string settled_by(const GivenOptions& given, const run::RunConfig& asked);
// What a planner may decide of such a run; nothing where the layout is settled.
std::optional<run::LayoutFreedom> freedom_of(const GivenOptions& given, const run::RunConfig& asked);

} // namespace tutti::resolve

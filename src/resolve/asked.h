// From the user's input to the config of a run: a config file, flags over it, a plan that both have to agree with, and
// the ranks at hand.
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

// The config as it was asked for. Nothing is derived from it yet; only the config file and the plan are read and
// checked.
AskedRun asked_run(const GivenOptions& given);
// With what follows from it. `started`: see with_layout. `chosen`: how the batch is divided is left to the planner.
// Error where something does not fit.
run::RunConfig resolve_run(const run::RunConfig& asked, int started, bool chosen = false);

// The first given option that keeps the planner from choosing the layout: a mesh, a schedule, or another option of the
// layout that the planner does not follow. Empty if there is none.
std::string settled_by(const GivenOptions& given, const run::RunConfig& asked);
// What the planner may decide for this run; nothing if the layout is given.
std::optional<run::LayoutFreedom> freedom_of(const GivenOptions& given, const run::RunConfig& asked);

} // namespace tutti::resolve

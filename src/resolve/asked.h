// From the user's input to the config of a run: a config file, flags over it, the plan that the run follows, and the
// ranks at hand.
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
    std::vector<std::string> names{}; // of each flag as it was typed: --copies; empty: as it is called today
};

struct AskedRun {
    run::RunConfig config;
    std::optional<Plan> plan{};      // that the run follows; what it decides is in the config
    std::optional<Plan> before{};    // else that of the run that goes on, if nothing that is asked for contradicts it
    std::vector<std::string> told{}; // sentences about what wins over what
};

// The config as it was asked for. Nothing is derived from it yet; only the config file and the plan are read and
// checked. `started`: see with_layout.
AskedRun asked_run(const GivenOptions& given, int started = 0);
// With what follows from it. `chosen`: how the batch is divided is left to the planner. Error where something does not
// fit.
run::RunConfig resolve_run(const run::RunConfig& asked, int started, bool chosen = false);

// The first given option that keeps the planner from choosing the layout: a mesh, a schedule, or another option of the
// layout that the planner does not follow. Empty if there is none.
std::string settled_by(const GivenOptions& given, const run::RunConfig& asked);
// What the planner may decide for this run; nothing if the layout is given.
std::optional<run::LayoutFreedom> freedom_of(const GivenOptions& given, const run::RunConfig& asked);

} // namespace tutti::resolve

// From what was given to the config of a run: a config file, flags over it, a plan that both have to agree with, and
// the ranks there are.
#pragma once

#include "train/run_config.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti::cli {

struct GivenOptions {
    std::optional<std::string> config;               // a TOML file
    std::vector<std::optional<std::string>> flags{}; // the text of each of run_options()
};

// What was asked for: nothing is derived, and nothing checked but config file and plan, which are all that is read.
RunConfig asked_run(const GivenOptions& given);
// With what follows from it. `started`: see with_layout. Error where something does not fit.
RunConfig resolve_run(const RunConfig& asked, int started);

} // namespace tutti::cli

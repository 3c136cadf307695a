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

// `started`: see with_layout. Error where something does not fit; nothing but config file and plan is read for it.
RunConfig resolve_run(const GivenOptions& given, int started);

} // namespace tutti::cli

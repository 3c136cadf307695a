// Which plan a run follows, and what wins over it:
//
//   a plan on the command line    wins over all; options beside it there have to agree with it
//   the plan.json of a run that   where the run followed a plan, or nothing is said of its ranks; options on the
//   goes on                       command line win over it
//   a plan of the config file     else; options on the command line win over it, those of the file have to agree
//
// An option that wins over a plan has the plan made anew: of what was asked for, and of what the plan says that still
// goes with it. Every victory is told in one sentence.
#pragma once

#include "resolve/asked.h"

#include <functional>
#include <set>

namespace tutti::resolve {

using OptionKeys = std::set<std::string, std::less<>>;

struct AskedOptions {
    run::RunConfig config{};    // with what both say
    OptionKeys file{}, typed{}; // the keys of those that the config file has, and the command line
    std::string file_name{};    // of the config file
    int started = 0;            // processes, by mpirun or srun
};

AskedRun with_plan_to_follow(const AskedOptions& asked);

} // namespace tutti::resolve

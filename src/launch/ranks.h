// The ranks of a run: this process alone, threads of it, processes that mpirun started, or processes for which it
// starts mpirun itself. Only rank 0 speaks; what ends one rank ends all, and is told once.
#pragma once

#include "comm/group.h"
#include "run/run_config.h"

#include <functional>

namespace tutti::launch {

int started_ranks(); // processes that mpirun or srun started with this one, itself among them; 0: nobody did

// The exit status of what a process does. What it throws is told, by one of the ranks.
int run_and_report(const std::function<int()>& action);

// Error where so many ranks could not start here: before anything is said of them.
void check_room(const run::RunConfig& config);

// Calls the body for every rank that is in this process: for none where it only starts mpirun. The config is resolved.
// Returns the exit status when all ranks of the run are done; a failure that nobody has told yet is thrown.
using RankBody = std::function<void(comm::World&)>;
int run_ranks(const run::RunConfig& config, const RankBody& body);

// The status of a run that was asked to stop and did: 128 and the signal's number, the same on all ranks; 0 where none
// was asked. All ranks call it.
int status_of_stop(comm::World& world);

// Compute threads of a rank on the CPU.
int threads_of_rank(const run::RunConfig& config, int rank);

} // namespace tutti::launch

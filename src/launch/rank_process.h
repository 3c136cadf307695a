// A rank that is a process of its own and meets the others through MPI.
#pragma once

#include "comm/mpi_world.h"
#include "launch/ranks.h"

namespace tutti::launch {

// Returns 0 when the bodies of all ranks have. Where one fails, the process ends here: its sentence is told by rank 0,
// or by the first rank that is still there.
int run_as_process(const run::RunConfig& config, const comm::ProcessLaunch& launch, const RankBody& body);

// A rank that is done waits here until all are: so each learns of a failure that comes late.
void end_together(comm::World& world);

} // namespace tutti::launch

// A rank that is a process of its own and meets the others through MPI.
#pragma once

#include "cli/ranks.h"
#include "comm/mpi_world.h"

namespace tutti::cli {

// Returns 0 when the bodies of all ranks have. Where one fails, the process ends here: its sentence is told by rank 0,
// or by the first rank that is still there.
int run_as_process(const RunConfig& config, const ProcessLaunch& launch, const RankBody& body);

// A rank that is done waits here until all are: so each learns of a failure that comes late.
void end_together(World& world);

} // namespace tutti::cli

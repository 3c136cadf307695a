// Ranks that are processes started by mpirun or srun and find each other through MPI, which is a plug-in.
#pragma once

#include "comm/group.h"

namespace tutti::comm {

// Error where the plug-in or MPI is not there. The world's end waits for the other ranks, unless one has failed.
// `places`: per rank of the world the process that takes it, as MPI counts them; empty: that of its own number.
std::unique_ptr<World> open_mpi_world(Seconds timeout = default_timeout, std::span<const int> places = {});

// What the environment says about how this process was started.
struct ProcessLaunch {
    int ranks = 1;
    int local_rank = 0, local_ranks = 1; // among those on this machine
    int rank = 0;
    bool operator==(const ProcessLaunch&) const = default;
};
std::optional<ProcessLaunch> find_launch(); // none: it was not started by mpirun or srun

} // namespace tutti::comm

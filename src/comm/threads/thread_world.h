// Ranks that are threads of one process: for tests, and for parallel runs without MPI. A message is copied once,
// straight from the sender's buffer to the receiver's.
#pragma once

#include "comm/group.h"

namespace tutti::comm::threads {

// The worlds of all ranks, by rank; each is used by a thread of its own.
std::vector<std::unique_ptr<World>> make_thread_worlds(int ranks, Seconds timeout = default_timeout,
                                                       Seconds silence = default_silence);

} // namespace tutti::comm::threads

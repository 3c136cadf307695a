// Binds the ranks of a run to cores: those of each machine agree on who computes where.
#pragma once

#include "comm/group.h"
#include "cores/binding.h"
#include "run/run_config.h"

namespace tutti::launch {

// This rank, which computes with so many threads, from the thread that does. Ranks that may run on the same units share
// them out; a rank that its launcher gave units of its own keeps these. `computes_here`: and not on a GPU, whose ranks
// stay as they are unless the config asks. All ranks call it.
cores::Binding bind_rank(const run::RunConfig& config, comm::World& world, int threads, bool computes_here);

} // namespace tutti::launch

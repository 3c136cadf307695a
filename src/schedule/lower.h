// Lowers a schedule to Programs: per rank its tasks with sends, receives, synchronisation and update, over segments
// with costs instead of instructions. The simulator replays them; the compiler fills the segments of the same tasks.
#pragma once

#include "program/program.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

#include <vector>

namespace tutti::schedule {

std::vector<Program> lower(const Schedule& schedule, const Costs& costs);

} // namespace tutti::schedule

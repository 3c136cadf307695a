// The collectives of a Program in the order of its step, group by group. The ranks of a group have to agree on them, or
// they would combine unrelated data or wait for each other for ever.
#pragma once

#include "program/program.h"

#include <string>
#include <vector>

namespace tutti {

// A line per group that the step uses: its name and members, ": ", and a digest of its collectives and their sizes.
std::string collective_orders(const Program& program);

// Bug where two ranks say something else of one group. `orders`: of every rank, in the order of ranks.
void check_collective_orders(const std::vector<std::string>& orders);

} // namespace tutti

// Cores that should be equally fast are not: they share clocks and units with others, and that changes by the second.
// Which rank was slow when a run began says little about later steps; how much ranks differ, does.
#pragma once

#include "simulate/rank_simulation.h"

namespace tutti::simulate {

// Simulates the outlines several times. Each time every rank computes at a pace drawn from those that were found (1: as
// its outline says, 2: twice as long). Returns the one with the median time. Where all paces are 1 it is
// simulate(outlines).
std::vector<SimulatedRank> simulate_uneven(std::span<const Outline> outlines, std::span<const double> paces);

} // namespace tutti::simulate

// Simulation with unequal ranks. Cores of one kind differ in speed, since they share clocks and units with others, and
// the differences change by the second. Which rank was slow when a run began says little about later steps; how much
// ranks differ says more.
#pragma once

#include "simulate/rank_simulation.h"

namespace tutti::simulate {

// Simulates the outlines several times. Each time every rank computes at a slowdown drawn from those that were found
// (1: as its outline says, 2: twice as long). Returns the one with the median time. Where all slowdowns are 1 it is
// simulate(outlines).
std::vector<SimulatedRank> simulate_uneven(std::span<const Outline> outlines, std::span<const double> slowdowns);

} // namespace tutti::simulate

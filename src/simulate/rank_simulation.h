// Simulates the outlines of all ranks of a world: a communication begins when all of its ranks have come to it, and
// goes on beside what they compute; collectives of one group take turns. No other sharing of links and cores is
// modelled.
#pragma once

#include "simulate/outline.h"

#include <span>
#include <vector>

namespace tutti::simulate {

struct Interval {
    double start = 0, end = 0;
};

struct SimulatedWait {
    std::int32_t task = -1, communication = 0; // task -1: at the end of the step
    double start = 0, end = 0;
};

struct SimulatedRank {
    double time = 0;                      // until its last communication is done
    std::vector<Interval> tasks;          // as Outline::tasks; from when nothing held them up
    std::vector<Interval> communications; // as Outline::communications; from when this rank came to it
    std::vector<SimulatedWait> waits;     // that took time, in order
};

// Error where the ranks wait for each other in a circle.
std::vector<SimulatedRank> simulate(std::span<const Outline> outlines);

} // namespace tutti::simulate

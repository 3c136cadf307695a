// The simulator: replays the Programs of all ranks with the costs of their segments instead of kernels.
#pragma once

#include "plan/plan.h"
#include "program/program.h"

#include <span>
#include <vector>

namespace tutti::simulate {

struct SimulatedTask {
    double start = 0, end = 0;
};

struct Simulation {
    double time = 0;
    std::vector<std::vector<SimulatedTask>> ranks; // as Program::step
};

// Error where the ranks wait for each other in a circle.
Simulation simulate(std::span<const Program> programs);

// The schedule of a plan, with the stage costs kept in it. Error where the plan has none.
Simulation simulate(const Plan& plan);

} // namespace tutti::simulate

// Memory first, time second: the two stages over either solver, and the list of choices between them.
//
//   A:      R*     = the least redundancy
//           R_time = the redundancy of the fastest choice
//   B(eps): the fastest with redundancy <= R* + eps (R_time - R*), eps in [0, 1]
#pragma once

#include "planner/strategies/eliminate.h"
#include "planner/strategies/integer_program.h"

#include <span>

namespace tutti::planner::strategies {

enum class Solver : std::uint8_t { any, elimination, program }; // any: elimination, the program where that gives up

struct StagesOptions {
    Solver solver = Solver::any;
    EliminationLimits elimination{};
    ProgramLimits program{};
    std::vector<double> epsilons = {0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1};
};

struct ParetoPoint {
    double epsilon = 0; // the least of those asked for that gives it
    Solution solution;
};

struct StagesResult {
    std::vector<ParetoPoint> points; // by redundancy; the first is B(0), the last the fastest. Each once.
    Solver solver = Solver::any;     // that found them
    Elimination elimination;         // as far as it was asked
    std::vector<ProgramResult> programs;
    double worst_gap = 0; // of the integer programs
    bool proven = true;   // no program stopped at a limit

    Amount least_redundancy() const { return points.front().solution.redundancy; }
};

// The most redundancy that an epsilon allows.
Amount redundancy_bound(Amount least, Amount of_fastest, double epsilon);

// Error where no choice is allowed, saying why.
StagesResult solve_stages(const Problem& problem, const StagesOptions& options = {});

} // namespace tutti::planner::strategies

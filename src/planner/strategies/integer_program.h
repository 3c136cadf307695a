// The same problem as an integer program, solved by COIN-OR CBC:
//
//   x[n,o] in {0, 1}   option o of node n is chosen                sum_o x[n,o] = 1
//   y[e,o,p] >= 0      both ends of edge e are chosen so           sum_p y[e,o,p] = x[from,o]  and  sum_o y = x[to,p]
//   tau                the largest transient                       tau >= sum_o transient[n,o] x[n,o], and for edges
//
// With equalities the y come out whole where the x do. A cap on memory is a row for every time point.
#pragma once

#include "planner/strategies/problem.h"

#include <functional>
#include <string>

namespace tutti::planner::strategies {

struct ProgramLimits {
    double seconds = 60;
    double gap = 0; // relative, with which a solution is good enough
};

struct ProgramResult {
    enum class Status { optimal, stopped, infeasible };
    Status status = Status::stopped; // stopped: at a limit, with or without a solution
    std::optional<Solution> solution;
    std::string reason; // infeasible: why, as a sentence
    double bound = 0;   // no solution is better than this
    double gap = 0;     // relative, between solution and bound
    int variables = 0, constraints = 0, nodes = 0;
    double seconds = 0;
};

ProgramResult solve_program(const Problem& problem, const Goal& goal, const ProgramLimits& limits = {});

} // namespace tutti::planner::strategies

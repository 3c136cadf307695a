// The exact solver: nodes are eliminated one after the other, each time leaving a table over the options of its
// neighbours, whose cells are lists of what the eliminated part may cost. A layer of a model is nearly a chain, so the
// tables stay small; where they would not, it says so and the integer program has to do.
#pragma once

#include "planner/strategies/problem.h"

#include <string>
#include <vector>

namespace tutti::planner::strategies {

struct EliminationLimits {
    double most_cells = 4e6; // of the largest table, times the options of the node that it is made for
    double most_entries = 4e7;
};

struct Elimination {
    bool solved = false;
    std::string reason;          // where it was not: which limit, or a cap
    int width = 0;               // neighbours of a node when its turn came, at most
    double cells = 0;            // of the largest table, times the options of the node that it was made for
    std::size_t entries = 0;     // that were kept, in all
    std::vector<Solution> front; // by redundancy; empty where no choice is allowed
    double seconds = 0;
};

// Every choice that no other beats in both redundancy and time, one for each pair of values. The first has the least
// redundancy, the last the least time.
Elimination pareto_front(const Problem& problem, const EliminationLimits& limits = {});

// Of the front only its one end, which takes less work: the least redundancy, with some time, or the least time, with
// the least redundancy that goes with it.
Elimination eliminate(const Problem& problem, Goal::Least least, const EliminationLimits& limits = {});

} // namespace tutti::planner::strategies

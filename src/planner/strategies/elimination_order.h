// In which order nodes are eliminated, and what every step takes in; and what the rest of a problem costs at least once
// some of its nodes are chosen.
#pragma once

#include "planner/strategies/problem.h"

#include <vector>

namespace tutti::planner::strategies {

// Factors are numbered: one per node, then one per edge, then the table that each step leaves.
struct EliminationStep {
    int node = 0;
    std::vector<int> scope; // its neighbours, ascending: the table is over their options, the last fastest
    std::vector<int> takes; // factors with the node in them
    double cells = 1;       // of the table, times the node's options
};

struct EliminationOrder {
    std::vector<EliminationStep> steps;
    std::vector<std::vector<int>> scopes; // of all factors
    std::vector<std::size_t> options;     // per node: how many

    std::size_t cell(int factor, const std::vector<int>& chosen) const;
    std::size_t cells(int factor) const;
    // The next combination of options of a scope's nodes; false after the last.
    bool advance(const std::vector<int>& scope, std::vector<int>& chosen) const;
};

// Each time the node that ties the fewest of its neighbours together that were not; among equals the smallest table.
EliminationOrder elimination_order(const Problem& problem);

// Per step and cell of its table: the least that all nodes outside the step's part cost, given the cell. `forbidden`
// where nothing is allowed. One table per step.
struct Completion {
    std::vector<std::vector<Amount>> redundancy, time; // the former without transients
};
Completion completion(const Problem& problem, const EliminationOrder& order);

} // namespace tutti::planner::strategies

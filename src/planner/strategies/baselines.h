// Strategies that people write by hand, as choices of the same model, to compare with: among the options that fit a
// description, the fastest.
#pragma once

#include "planner/strategies/model.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti::planner::strategies {

struct Baseline {
    std::string name;
    std::optional<Solution> solution;
    std::string reason; // why there is none
};

// Products by columns, then rows; all between them on every rank.
Baseline tensor_parallelism(const StrategyModel& model);
// The same with all between them split along the sequence, gathered for products and again in the backward.
Baseline sequence_parallelism(const StrategyModel& model);
// Every operator on its samples, with weights spread and gathered for use.
Baseline zero3(const StrategyModel& model);

std::vector<Baseline> baselines(const StrategyModel& model);

} // namespace tutti::planner::strategies

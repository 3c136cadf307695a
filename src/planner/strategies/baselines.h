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

// Megatron's tensor parallelism: matmuls by columns, then by rows; all operators between them on every rank.
Baseline tensor_parallelism(const StrategyModel& model);
// Megatron's sequence parallelism: the same with all operators between split along the sequence, gathered for matmuls
// and again in the backward.
Baseline sequence_parallelism(const StrategyModel& model);
// FSDP (ZeRO 3): every operator on its own samples, with weights sharded and gathered for use.
Baseline zero3(const StrategyModel& model);

std::vector<Baseline> baselines(const StrategyModel& model);

} // namespace tutti::planner::strategies

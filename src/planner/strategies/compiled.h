// Compares the plans of a tensor group by the Programs that they compile to: the list of the search, the plans that
// people set by hand and the compiler's own default. Redundancy leads the search to plans with little memory, but it is
// only a rough measure of the transient memory of tasks. The memory of a rank is read off its Program.
#pragma once

#include "planner/strategies/model.h"
#include "planner/strategies/stages.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::planner::strategies {

inline constexpr const char* default_name = "the default"; // that of the plan without strategies

struct CompiledPlan {
    std::string name;                   // "epsilon 0.1", "ZeRO 3", "the default"
    std::optional<double> epsilon{};    // of the search's list
    Plan plan{};                        // without strategies where the compiler decides
    std::optional<Solution> solution{}; // none: the compiler decides, or nothing is possible
    std::optional<Outcome> predicted{}; // of a solution
    std::optional<Bytes> program{};     // of rank 0, without the workspace of kernels
    std::string reason{};               // why there is no Program
};

// `one`: one stage on the tensor axis, without strategies. `forward`: the model's graph for one micro-batch. First the
// list, by redundancy.
std::vector<CompiledPlan> compiled_plans(const StrategyModel& model, const StagesResult& found, const Graph& forward,
                                         const Plan& one);

// The fastest of the plans that take at most least + epsilon (that of the fastest - least) bytes, of those that keep to
// the cap. No time is predicted of what the compiler decides: it is chosen only where nothing else is as small. Null
// where no plan keeps to the cap.
const CompiledPlan* choose(std::span<const CompiledPlan> plans, double epsilon, std::optional<Bytes> cap = {});
// The one that takes least, whatever the cap; null where nothing was compiled.
const CompiledPlan* least_of(std::span<const CompiledPlan> plans);

} // namespace tutti::planner::strategies

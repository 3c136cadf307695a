// The strategies that intra-operator planning finds, as candidates of the joint search. The Pareto list of a tensor
// group (planner/strategies/) is solved on the sample model, a few layers, for one width and micro-batch; the cost of
// an entry for a rank is found as for any other: by compiling small stages with it.
#pragma once

#include "planner/search.h"

#include <limits>

namespace tutti::planner {

// A few, from the least redundant to the fastest: those that neither Megatron's nor another of them dominates in time,
// weights and stashes at once, and that take no more than `slowest` times the fastest. Empty where there are none, or
// where solving would take long.
std::vector<TensorParallelism> pareto_strategies(PlanModel& model, int tensor, std::int64_t micro_batch,
                                                 double slowest = std::numeric_limits<double>::infinity());

// Searches once more with lists for the widths and micro-batches of the best plans so far, and adds what is faster than
// all of them.
void search_pareto_strategies(PlanModel& model, const SearchOptions& options, SearchResult& found);

} // namespace tutti::planner

// Plans whose model data goes to host memory as far as the device has no room for it. Looked for where nothing fits
// otherwise, and on few devices, where it may let a larger micro-batch do without recomputation.
#pragma once

#include "planner/search.h"

#include <limits>
#include <optional>
#include <vector>

namespace tutti::planner {

constexpr double host_share = 0.9; // of a host's memory, for model data
constexpr int few_devices = 16;    // on which offloading is looked at even where plans fit

// The plan with its model data offloaded: the time with what its ranks wait for copies, memory with what is elsewhere.
// Nothing where it fits as it is, or not even so, or is no faster than that.
std::optional<PlanCost> evaluate_offloaded(PlanModel& model, const PlanDecisions& decisions, const PlacedRanks& placed,
                                           ReadySchedule& schedule,
                                           double faster_than = std::numeric_limits<double>::infinity());

// The best of every scaling, by rising time, as far as they are faster than this.
SearchResult plans_with_offload(PlanModel& model, const SearchSpace& space, double faster_than,
                                const ProgressListener& listener);

} // namespace tutti::planner

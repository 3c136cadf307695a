// The slow evaluator that the fast one is held against: events in time, every dependency looked up by name.
#pragma once

#include "schedule/costs.h"
#include "schedule/schedule.h"

#include <vector>

namespace tutti {

struct SlowResult {
    std::vector<double> start, end; // as Schedule::tasks
    std::vector<double> peaks;      // per rank
    bool finished = false;          // false: a deadlock
};

SlowResult evaluate_slowly(const schedule::Schedule& schedule, const schedule::Costs& costs);

} // namespace tutti

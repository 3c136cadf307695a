// The sentences about what the planner found: why its best plan is the fastest, or why there is none.
#pragma once

#include "planner/joint.h"

#include <string>
#include <vector>

namespace tutti::planner {

// Which term of the step the winner has less of than the others, and what keeps it from being faster.
std::vector<std::string> reasons(PlanModel& model, const JointResult& result);
// Where nothing fits: whether that is for want of memory, and what is missing.
bool lacks_memory(const PlanModel& model, const JointResult& result);
std::string what_is_missing(PlanModel& model, const JointResult& result);

} // namespace tutti::planner

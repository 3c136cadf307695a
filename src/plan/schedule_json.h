// The schedule section of a plan file: parameters, the order of every rank, and the costs used.
#pragma once

#include "plan/plan.h"

#include <nlohmann/json_fwd.hpp>

namespace tutti {

nlohmann::ordered_json schedule_to_json(const PlannedSchedule& planned);
// Error naming the file where it is no schedule that runs.
PlannedSchedule schedule_from_json(const nlohmann::json& value, const std::string& file);

} // namespace tutti

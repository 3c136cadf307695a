// The settings that a run's losses follow from, as a checkpoint records them: going on with others is allowed, but
// told.
#pragma once

#include "plan/plan.h"
#include "run/run_config.h"

#include <nlohmann/json.hpp>

#include <string>

namespace tutti::run {

// An object of the settings that matter under this schedule: a constant one does not ask for the number of steps.
nlohmann::ordered_json recorded_settings(const RunConfig& config, const Workload& workload);

// "lr 0.001 (now 0.002), global_batch 8 (now 4)" for those that are in both and differ; empty where none does.
std::string changed_settings(const nlohmann::ordered_json& then, const nlohmann::ordered_json& now);

// "; its learning rate was 1.00e-04 at last, and goes on at 6.20e-04" for a run that has done so many steps, where that
// is a jump which its own schedule does not make; else empty.
std::string learning_rate_jump(const nlohmann::ordered_json& then, const RunConfig& now, std::int64_t steps_done);

} // namespace tutti::run

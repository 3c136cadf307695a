// Doubts: settings of a run that are allowed and yet not what anyone wants, one sentence each.
#pragma once

#include "models/model.h"
#include "plan/plan.h"
#include "run/run_config.h"

#include <string>
#include <vector>

namespace tutti::train {

std::vector<std::string> doubts_about(const run::RunConfig& config, const Plan& plan, const models::ModelFacts& facts);

} // namespace tutti::train

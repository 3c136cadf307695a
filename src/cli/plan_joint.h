// tutti plan: scaling, splitting, schedule and assignment of a model on a cluster, chosen together; what would be if;
// and what a plan that is there would take.
#pragma once

#include "cli/plan_options.h"

namespace tutti::cli {

int plan_joint(const std::string& model, const PlanOptions& options, PlanMode mode);

} // namespace tutti::cli

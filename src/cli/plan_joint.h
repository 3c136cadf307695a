// tutti plan: scaling, splitting, schedule and assignment of a model on a cluster, chosen together; what-if tables;
// and what a given plan would take.
#pragma once

#include "cli/plan_options.h"

namespace tutti::cli {

int plan_joint(const std::string& model, const PlanOptions& options, PlanMode mode);

} // namespace tutti::cli

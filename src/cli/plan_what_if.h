// What would be if: the best plans for other numbers of nodes, devices, sequences or layers.
#pragma once

#include "cli/planned.h"
#include "report/plan_page.h"

namespace tutti::cli {

// A table and a curve; with layers, up to the deepest model that the machines can train.
int what_if(const PlanRequest& request, const Cluster& cluster, const std::string& what, bool as_json);

// The scaling analysis: throughput of the best plans on fewer and more devices.
std::vector<ScalingPoint> scaling_curve(const PlanRequest& request, Planned& chosen);

} // namespace tutti::cli

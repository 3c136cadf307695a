// The what-if tables: the best plans for other numbers of nodes, devices, sequences or layers.
#pragma once

#include "cli/plan_watch.h"
#include "cli/planned.h"
#include "report/plan_page.h"

namespace tutti::cli {

// A table and a curve; with layers, up to the deepest model that the machines can train. Where it is to end early, of
// what is known by then.
int what_if(const PlanRequest& request, const costs::Cluster& cluster, const std::string& what, bool as_json,
            PlanWatch& watch);

// The scaling analysis: throughput of the best plans on fewer and more devices, as far as it is known when it is to
// end.
std::vector<report::ScalingPoint> scaling_curve(const PlanRequest& request, Planned& chosen, PlanWatch& watch);

} // namespace tutti::cli

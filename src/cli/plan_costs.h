// Where the planner's costs come from: data sheets of a cluster's devices, or what was measured on a machine.
#pragma once

#include "cli/arguments.h"
#include "costs/cost_model.h"
#include "costs/profile.h"
#include "planner/evaluate/plan_model.h"

#include <memory>
#include <optional>

namespace tutti::cli {

struct PlanningMachines {
    costs::Cluster cluster;
    std::optional<costs::CostProfile> profile{};
};

// A cluster.toml, a profile, or both: then kernels and communication within a node take their timed durations, with a
// warning where the cluster's devices have another name than the one that was measured. Neither: the profile that tutti
// profile has kept of this machine. A profile of another version is an Error.
PlanningMachines planning_machines(const CLI::Option* cluster, const CLI::Option* profile);

// `machines` is kept by reference.
std::unique_ptr<costs::CostModel> costs_of(const PlanningMachines& machines);
planner::PlannerOptions planner_options(const PlanningMachines& machines);
// The profile's type and logits where there is one. Error where another type was said.
void follow_profile(const PlanningMachines& machines, bool dtype_is_set, planner::PlannerWorkload& workload);

// tutti plan MODEL --evaluate FILE: what the planner's model says of a plan that is there already.
int evaluate_plan(const std::string& name, const std::string& file, const PlanningMachines& machines, bool as_json);

} // namespace tutti::cli

// A joint search as `tutti plan` asks for it, with everything that its result refers to.
#pragma once

#include "cli/plan_costs.h"
#include "planner/joint.h"

namespace tutti::cli {

struct PlanRequest {
    models::ModelSource source;
    std::string name;
    planner::PlannerWorkload workload;
    std::optional<costs::CostProfile> profile{};
};

struct Planned {
    PlanningMachines machines;
    const costs::Cluster& cluster = machines.cluster;
    std::unique_ptr<costs::CostModel> costs;
    planner::BlockChain chain;
    planner::PlanModel model;
    planner::JointResult result;

    Planned(const PlanRequest& request, costs::Cluster all, const planner::JointOptions& options)
        : machines{std::move(all), request.profile}, costs(costs_of(machines)),
          chain(planner::chain_of(request.source, request.workload.sequence, request.workload.precision.compute)),
          model(chain, *costs, request.workload, planner_options(machines)),
          result(planner::plan_jointly(model, options)) {}
    Planned(const Planned&) = delete;
    Planned& operator=(const Planned&) = delete;
};

} // namespace tutti::cli

// A joint search as `tutti plan` asks for it, with everything that its result refers to.
#pragma once

#include "cli/plan_costs.h"
#include "planner/joint.h"

namespace tutti::cli {

struct PlanRequest {
    ModelSource source;
    std::string name;
    PlannerWorkload workload;
    std::optional<CostProfile> profile{};
};

struct Planned {
    PlanningMachines machines;
    const Cluster& cluster = machines.cluster;
    std::unique_ptr<CostModel> costs;
    BlockChain chain;
    PlanModel model;
    JointResult result;

    Planned(const PlanRequest& request, Cluster all, const JointOptions& options)
        : machines{std::move(all), request.profile}, costs(costs_of(machines)),
          chain(chain_of(request.source, request.workload.sequence, request.workload.precision.compute)),
          model(chain, *costs, request.workload, planner_options(machines)), result(plan_jointly(model, options)) {}
    Planned(const Planned&) = delete;
    Planned& operator=(const Planned&) = delete;
};

} // namespace tutti::cli

// All strategies of a step graph on a cluster of fast links, searched.
#pragma once

#include "costs/cluster.h"
#include "costs/cost_model.h"
#include "planner/strategies/model.h"
#include "planner/strategies/stages.h"

#include <utility>
#include <vector>

namespace tutti::planner::strategies {

inline costs::Cluster fast_cluster(int ranks) {
    costs::DeviceKind device = *costs::find_device_preset("h100");
    device.flops32 = 1e12;
    device.bandwidth = 1e11;
    device.launch = 0;
    const LinkSpeed link{1e-9, 1e11};
    return costs::uniform_cluster({device, ranks, link, {std::int64_t{1} << 40}, link}, 1, {});
}

struct Searched {
    Graph step;
    costs::Cluster cluster;
    costs::RooflineCost costs;
    planner::strategies::StrategyModel model;
    planner::strategies::StagesResult found;

    Searched(Graph graph, const std::vector<int>& axes, int ranks)
        : step(std::move(graph)), cluster(fast_cluster(ranks)), costs(cluster, step.operators()),
          model(step, costs, options(axes)), found(planner::strategies::solve_stages(model.problem())) {}

    static planner::strategies::ModelOptions options(const std::vector<int>& axes) {
        planner::strategies::ModelOptions result;
        result.axes = axes;
        return result;
    }
};

} // namespace tutti::planner::strategies

// All strategies of a step graph on a cluster of fast links, searched.
#pragma once

#include "cluster/cluster.h"
#include "cluster/cost_model.h"
#include "planner/intraop/model.h"
#include "planner/intraop/stages.h"

#include <utility>
#include <vector>

namespace tutti::intraop {

inline Cluster fast_cluster(int ranks) {
    DeviceKind device = *find_device_preset("h100");
    device.flops32 = 1e12;
    device.bandwidth = 1e11;
    device.launch = 0;
    const LinkSpeed link{1e-9, 1e11};
    return uniform_cluster({device, ranks, link, {std::int64_t{1} << 40}, link}, 1, {});
}

struct Searched {
    Graph step;
    Cluster cluster;
    RooflineCost costs;
    StrategyModel model;
    StagesResult found;

    Searched(Graph graph, const std::vector<int>& axes, int ranks)
        : step(std::move(graph)), cluster(fast_cluster(ranks)), costs(cluster, step.operators()),
          model(step, costs, options(axes)), found(solve_stages(model.problem())) {}

    static ModelOptions options(const std::vector<int>& axes) {
        ModelOptions result;
        result.axes = axes;
        return result;
    }
};

} // namespace tutti::intraop

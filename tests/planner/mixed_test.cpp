// Clusters of unequal devices: what the search makes of them, against every plan that treats all devices alike.
#include "planner/joint.h"
#include "schedule/families.h"
#include "setting.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace tutti {

using namespace costs;
using namespace planner;
using namespace schedule;
namespace {

// The fastest with stages of as many blocks each: every mesh, micro-batch, schedule and ZeRO level, with the devices in
// every order there is.
RankedPlan best_uniform(Setting& setting) {
    PlanModel& model = setting.model;
    RankedPlan best;
    best.cost.time = std::numeric_limits<double>::infinity();
    const int devices = setting.cluster.device_count(), blocks = setting.chain.blocks();
    const std::int64_t batch = setting.workload.global_batch;
    std::vector<int> order(setting.cluster.nodes.size());
    std::iota(order.begin(), order.end(), 0);
    do {
        for (int pipe = 1; pipe <= devices; ++pipe)
            for (int data = 1; data * pipe <= devices; ++data)
                for (std::int64_t b = 1; b <= batch; b *= 2) {
                    if (batch % (data * b) != 0) continue;
                    PlanDecisions decisions{.tensor_parallel = {}, .pipe = pipe, .data = data, .micro_batch = b};
                    decisions.layout.nodes = order;
                    const PlacedRanks placed = place_ranks(setting.cluster, decisions.mesh(), decisions.layout);
                    const auto micro_batches = static_cast<int>(model.micro_batches(data, b));
                    for (const ScheduleParameters& p : schedule_menu(pipe, micro_batches, blocks, false)) {
                        ReadySchedule* ready = model.schedules().find(p);
                        if (!ready || ready->schedule.parameters.stages() > blocks) continue;
                        decisions.schedule = ready->schedule.parameters;
                        decisions.schedule.recompute.clear();
                        for (const Zero zero : zero_stages(data)) {
                            decisions.zero = zero;
                            Splitter splitter(model, decisions, placed, *ready);
                            if (!splitter.complete(splitter.even())) continue;
                            const double time = model.step_seconds(splitter.decisions(), placed, *ready);
                            if (time < best.cost.time) best = {"", splitter.decisions(), {.time = time}};
                        }
                    }
                }
    } while (std::ranges::next_permutation(order).found);
    return best;
}

// Blocks that devices of a kind compute, on the average.
double blocks_of(const Setting& setting, const PlanDecisions& decisions, int kind) {
    const std::vector<int> devices = devices_of(setting.cluster, decisions.mesh(), decisions.layout);
    const std::vector<ClusterDevice> all = setting.cluster.devices();
    double blocks = 0, count = 0;
    for (int rank = 0; rank < decisions.mesh().ranks(); ++rank) {
        if (all[static_cast<std::size_t>(devices[static_cast<std::size_t>(rank)])].kind != kind) continue;
        ++count;
        for (int stage = 0; stage < decisions.stages(); ++stage)
            if (rank_of(decisions.schedule, 0, stage) == decisions.mesh().place_of(rank).pipe) {
                const int first = stage == 0 ? 0 : decisions.cuts[static_cast<std::size_t>(stage - 1)];
                const int end = stage + 1 == decisions.stages() ? setting.chain.blocks()
                                                                : decisions.cuts[static_cast<std::size_t>(stage)];
                blocks += end - first;
            }
    }
    return count > 0 ? blocks / count : 0;
}

TEST(MixedCluster, TheChosenPlanBeatsEveryUniformOne) {
    Setting setting(mixed_cluster(3), 8, 64);
    const SearchResult found = search(setting.model, {});
    ASSERT_FALSE(found.best.empty());
    const RankedPlan& best = found.best.front();
    const RankedPlan uniform = best_uniform(setting);
    EXPECT_LT(best.cost.time, 0.9 * uniform.cost.time)
        << describe(best.decisions) << " against " << describe(uniform.decisions) << ", "
        << describe(setting.cluster, uniform.decisions.layout);
    EXPECT_GT(best.decisions.pipe, 1);
    EXPECT_GT(blocks_of(setting, best.decisions, 1), 1.5 * blocks_of(setting, best.decisions, 0));
}

// Also where it is best to treat equal devices alike, or to leave slow ones alone: with 30 times the speed, two devices
// do nearly all of the work, and 16 sequences are few.
TEST(MixedCluster, NoUniformPlanIsFaster) {
    for (const double speed : {1.0, 3.0, 30.0}) {
        Setting setting(mixed_cluster(speed), 6, 16);
        const SearchResult found = search(setting.model, {});
        ASSERT_FALSE(found.best.empty());
        const RankedPlan uniform = best_uniform(setting);
        EXPECT_LE(found.best.front().cost.time, uniform.cost.time * (1 + 1e-9))
            << describe(found.best.front().decisions) << " against " << describe(uniform.decisions);
        if (speed == 30) {
            EXPECT_EQ(found.best.front().decisions.mesh().ranks(), 2);
        }
    }
}

TEST(MixedCluster, APlanNamesItsDevices) {
    Setting setting(mixed_cluster(3), 6, 16);
    PlanDecisions decisions{
        .tensor_parallel = {}, .pipe = 4, .micro_batch = 1, .schedule = resolve({.ranks = 4, .micro_batches = 16})};
    decisions.cuts = {2, 5, 8};
    decisions.layout.nodes = {2, 0, 3, 1};
    const Plan plan = plan_of(setting.model, decisions);
    ASSERT_TRUE(plan.devices);
    EXPECT_EQ(plan.devices->ranks, (std::vector{2, 0, 3, 1}));
    EXPECT_EQ(plan.devices->nodes, (std::vector<PlannedNodes>{{"slow", 2, 1}, {"fast", 2, 1}}));
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
}

} // namespace
} // namespace tutti

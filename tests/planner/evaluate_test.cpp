// Plans as their files say them are evaluated to what the search told of them, by a model that knows nothing of it.
#include "base/error.h"
#include "planner/predict.h"
#include "setting.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace costs;
using namespace planner;
namespace {

struct EvaluateCase {
    const char* name;
    Cluster cluster;
    const char* model;
    int layers;
    std::int64_t batch;
};

std::vector<EvaluateCase> evaluate_cases() {
    return {{"two nodes", small_cluster(2, 4, 1), "gpt2-tiny", 4, 16},
            {"little memory", small_cluster(2, 2, 0.008), "gpt2-tiny", 6, 8},
            {"strategies", small_cluster(1, 4, 0.005), "gpt2-tiny", 4, 1},
            {"offloaded", small_cluster(1, 1, 0.006), "gpt2-tiny", 6, 4},
            {"offloaded pipeline", small_cluster(1, 2, 0.004), "gpt2-tiny", 6, 8},
            {"mixed", mixed_cluster(3), "llama-tiny", 6, 16}};
}

void expect_equal(const PlanCost& cost, const PlanCost& told) {
    EXPECT_EQ(cost.time, told.time);
    EXPECT_EQ(cost.bubble, told.bubble);
    EXPECT_EQ(cost.terms.total(), told.terms.total());
    ASSERT_EQ(cost.ranks.size(), told.ranks.size());
    for (std::size_t rank = 0; rank < told.ranks.size(); ++rank) {
        EXPECT_EQ(cost.ranks[rank].total(), told.ranks[rank].total()) << rank;
        EXPECT_EQ(cost.ranks[rank].elsewhere, told.ranks[rank].elsewhere) << rank;
    }
}

TEST(Evaluate, SaysWhatTheSearchSaid) {
    int with_strategies = 0, offloaded = 0;
    for (const EvaluateCase& one : evaluate_cases()) {
        Setting setting(one.cluster, small_model(one.model, one.layers), one.batch);
        const JointResult found = plan_jointly(setting.model, {});
        ASSERT_TRUE(found.fits()) << one.name;
        EXPECT_TRUE(std::ranges::is_sorted(found.search.best, {}, [](const RankedPlan& p) { return p.cost.time; }));
        for (const auto* plans : {&found.search.best, &found.by_hand})
            for (const RankedPlan& told : *plans) {
                SCOPED_TRACE(fmt::format("{}: {}, {}", one.name, describe(told.decisions),
                                         describe(setting.cluster, told.decisions.layout)));
                const Plan plan = parse_plan(to_json(plan_of(setting.model, told.decisions)), "plan.json");
                Setting fresh(one.cluster, small_model(one.model, one.layers), one.batch);
                fresh.workload.chunk_elements = plan.chunk_elements;
                expect_equal(predict(fresh.model, plan), told.cost);
                const PlanDecisions decisions = decisions_of(fresh.model, plan);
                EXPECT_EQ(devices_of(fresh.cluster, decisions.mesh(), decisions.layout),
                          devices_of(setting.cluster, told.decisions.mesh(), told.decisions.layout));
                EXPECT_EQ(decisions.tensor_parallel.strategies > 0, told.decisions.tensor_parallel.strategies > 0);
                with_strategies += decisions.tensor_parallel.strategies > 0 ? 1 : 0;
                offloaded += decisions.offload ? 1 : 0;
            }
    }
    EXPECT_GT(with_strategies, 0);
    EXPECT_GT(offloaded, 0);
}

// A pipeline over the four devices of the mixed cluster, in this order.
Plan plan_on(Setting& setting, const std::vector<int>& devices) {
    PlanDecisions decisions{.tensor_parallel = {}, .pipe = 4, .micro_batch = 1};
    decisions.schedule = {.family = "1f1b", .ranks = 4, .micro_batches = 16};
    decisions.cuts = {2, 4, 6};
    decisions.layout.devices = devices;
    return plan_of(setting.model, decisions);
}

TEST(Evaluate, GoesByThePlansDevices) {
    Setting setting(mixed_cluster(3), 6, 16);
    Plan fast_first = plan_on(setting, {2, 3, 0, 1}), slow_first = plan_on(setting, {0, 1, 2, 3});
    const double swapped = predict(setting.model, fast_first).time, usual = predict(setting.model, slow_first).time;
    EXPECT_NE(swapped, usual);
    fast_first.devices.reset(); // then in the cluster's order
    EXPECT_EQ(predict(setting.model, fast_first).time, usual);
}

TEST(Evaluate, RefusesDevicesThatAreNotThere) {
    Setting setting(mixed_cluster(3), 6, 16);
    const Plan plan = plan_on(setting, {2, 3, 0, 1});
    auto refusal = [&](const Cluster& cluster) -> std::string {
        Setting other(cluster, 6, 16);
        try {
            predict(other.model, plan);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(refusal(small_cluster(4, 1, 1)).find("rank 0 on device 2, fast in node 2, which is small in node 2"),
              std::string::npos);
    Cluster joined = mixed_cluster(3);
    std::swap(joined.kinds[0], joined.kinds[1]);
    EXPECT_NE(refusal(joined).find("plan for this cluster"), std::string::npos);
    EXPECT_EQ(refusal(mixed_cluster(3)), "");
}

TEST(Evaluate, RefusesLimitsOfMemoryThatNoSearchSets) {
    Setting setting(small_cluster(1, 1, 0.006), 6, 4);
    const JointResult found = plan_jointly(setting.model, {});
    ASSERT_TRUE(found.fits() && found.best().decisions.offload);
    Plan plan = plan_of(setting.model, found.best().decisions);
    plan.device_memory = {5'000'000};
    EXPECT_THROW(predict(setting.model, plan), Error);
}

} // namespace
} // namespace tutti

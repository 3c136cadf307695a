// The joint search on clusters small enough to enumerate everything, and what holds for it anywhere.
#include "exhaustive.h"
#include "planner/explanation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tutti {

using namespace costs;
using namespace planner;
using namespace sharding;
namespace {

TEST(PlanDecisions, SaysOfHowManyBlocksSomeAreRecomputed) {
    PlanDecisions decisions;
    decisions.recompute = {{0, 1}, {2}};
    EXPECT_NE(describe(decisions, 12).find(", 3 of 12 blocks recomputed"), std::string::npos);
    EXPECT_NE(describe(decisions).find(", 3 blocks recomputed"), std::string::npos);
}

TEST(Search, FindsTheBestOfAllPlans) {
    for (const double gigabytes : {1.0, 0.02}) {
        SCOPED_TRACE(gigabytes);
        Setting setting(small_cluster(2, 2, gigabytes), 2, 8);
        const SearchResult found = search(setting.model, {});
        ASSERT_FALSE(found.best.empty());
        const RankedPlan all = enumerate_all(setting);
        EXPECT_LE(found.best.front().cost.time, all.cost.time * (1 + 1e-9));
        EXPECT_GE(found.best.front().cost.time, found.progress.bound);
    }
}

// The search by itself, which has none of these among its candidates.
TEST(Search, FindsWhatIsAsFastAsPlansByHandOrInStages) {
    // Few enough scalings to try everything, and more.
    for (const auto& [devices, batch] : {std::pair(2, 8), std::pair(4, 24)}) {
        Setting setting(small_cluster(2, devices, 0.05), 3, batch);
        const JointResult result = plan_jointly(setting.model, {.compare = true});
        const JointResult alone = plan_jointly(setting.model, {.by_hand = false});
        ASSERT_TRUE(alone.fits());
        EXPECT_TRUE(alone.by_hand.empty());
        EXPECT_FALSE(result.by_hand.empty());
        EXPECT_FALSE(result.compared.empty());
        for (const auto* others : {&result.by_hand, &result.compared})
            for (const RankedPlan& plan : *others)
                EXPECT_GE(plan.cost.time, alone.best().cost.time * (1 - 1e-9)) << plan.name;
    }
}

// Plain data parallelism is among the plans set by hand: where it wins, nothing is said to be slower by another kind.
TEST(Search, DoesNotBoastOfDataParallelism) {
    Setting setting(small_cluster(1, 2, 1), 2, 8);
    const JointResult result = plan_jointly(setting.model, {});
    ASSERT_TRUE(result.fits());
    ASSERT_EQ(result.best().decisions.mesh(), (Mesh{.pipe = 1, .data = 2, .tensor = 1}))
        << describe(result.best().decisions);
    std::vector<std::string> names;
    for (const RankedPlan& plan : result.by_hand) names.push_back(plan.name);
    for (const char* name : {"DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3"})
        EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
    for (const std::string& sentence : reasons(setting.model, result))
        EXPECT_EQ(sentence.find("times as fast"), std::string::npos) << sentence;
}

// If communication between nodes takes longer than computation, some nodes are not used.
TEST(Search, MoreNodesAreNeverSlower) {
    const LinkLevel fabric{.name = "fabric", .speed = {.latency = 1e-3, .bytes = 1e8}};
    double fewer = std::numeric_limits<double>::infinity();
    for (const int nodes : {1, 2, 3}) {
        Setting setting(uniform_cluster(node_of(2, 1), nodes, fabric), 2, 2);
        const JointResult result = plan_jointly(setting.model, {.offload = false});
        ASSERT_TRUE(result.fits());
        EXPECT_LE(result.best().cost.time, fewer * (1 + 1e-12)) << nodes << " nodes";
        EXPECT_EQ(result.best().decisions.mesh().ranks(), 2);
        fewer = std::min(fewer, result.best().cost.time);
    }
}

TEST(Search, GivesTheSameAnswerOnAnyNumberOfThreads) {
    auto once = [](int threads) {
        Setting setting(small_cluster(2, 4, 0.03), 3, 16, threads);
        const SearchResult found = search(setting.model, {});
        std::vector<PlanDecisions> found_plans;
        for (const RankedPlan& plan : found.best) found_plans.push_back(plan.decisions);
        return std::pair(found_plans, found.progress.plans);
    };
    const auto alone = once(1);
    EXPECT_FALSE(alone.first.empty());
    EXPECT_EQ(alone, once(3));
}

// Whenever it is stopped: at once, while plans by hand are made, and later.
TEST(Search, TellsTheBestSoFarWhenItIsStopped) {
    double last = std::numeric_limits<double>::infinity();
    for (const int calls : {1, 40, 400, 1500}) {
        SCOPED_TRACE(calls);
        Setting setting(small_cluster(2, 2, 0.05), 3, 8);
        int heard = 0;
        double told = 0; // the best that the listener has heard of
        const JointResult result = plan_jointly(setting.model, {.compare = true, .listener = [&](const auto& progress) {
                                                                    told = progress.best;
                                                                    return ++heard < calls;
                                                                }});
        EXPECT_TRUE(result.stopped());
        EXPECT_EQ(heard, calls); // and nobody asks again
        EXPECT_TRUE(result.compared.empty());
        if (calls == 1) {
            EXPECT_FALSE(result.fits());
        } else if (told > 0) {
            ASSERT_TRUE(result.fits());
            EXPECT_LE(result.best().cost.time, told);
            EXPECT_LE(result.best().cost.time, last);
            last = result.best().cost.time;
        }
    }
    EXPECT_LT(last, std::numeric_limits<double>::infinity());
}

TEST(Search, FasterDevicesTakeLargerStages) {
    Cluster mixed = small_cluster(2, 2, 1);
    mixed.kinds.push_back(node_of(2, 1, 3));
    mixed.nodes = {0, 1};
    Setting setting(mixed, 8, 32);
    const SearchResult free = search(setting.model, {});
    const SearchResult usual = search(setting.model, {.space = {.splitting = false, .assignment = false}});
    ASSERT_FALSE(free.best.empty());
    ASSERT_FALSE(usual.best.empty());
    EXPECT_LT(free.best.front().cost.time, 0.95 * usual.best.front().cost.time);
}

TEST(Search, SaysWhatIsMissing) {
    Setting too_large(small_cluster(1, 2, 0.001), 4, 8);
    const JointResult nothing = plan_jointly(too_large.model, {});
    EXPECT_FALSE(nothing.fits());
    EXPECT_NE(what_is_missing(too_large.model, nothing).find("all devices together"), std::string::npos)
        << what_is_missing(too_large.model, nothing);
    // Enough for weights, gradients and optimizer states, and for little else; no host takes any of them.
    auto without_host = [](double gigabytes) {
        Cluster cluster = small_cluster(1, 2, gigabytes);
        cluster.kinds[0].host_memory = {};
        return cluster;
    };
    const double gigabytes = 0.0079;
    Setting close(without_host(gigabytes), 4, 8);
    const JointResult little = plan_jointly(close.model, {});
    ASSERT_FALSE(little.fits());
    const std::string sentence = what_is_missing(close.model, little);
    ASSERT_TRUE(little.search.closest) << sentence;
    EXPECT_TRUE(sentence.starts_with("the plan that needs least (")) << sentence;
    const double missing = -little.search.closest->cost.tightest().margin();
    EXPECT_GT(missing, 0);
    EXPECT_TRUE(sentence.ends_with(to_string(Bytes{static_cast<std::int64_t>(missing)}) + " is missing")) << sentence;
    // That much more is enough.
    Setting enough(without_host(gigabytes + (missing + 1) / 1e9), 4, 8);
    EXPECT_TRUE(plan_jointly(enough.model, {}).fits());
}

} // namespace
} // namespace tutti

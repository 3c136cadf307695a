#include "planner/evaluate/offloading.h"
#include "setting.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace costs;
using namespace planner;
namespace {

constexpr double gigabyte = 1e9;

// A model of equal blocks, all passes of every micro-batch on one rank.
OffloadedRank rank_of(int blocks, int micro_batches, double device) {
    OffloadedRank rank{.device = device, .copy = {0, 50e9}, .device_update = 2e12, .host_update = 100e9};
    for (int b = 0; b < blocks; ++b)
        rank.blocks.push_back({.weights = 0.4 * gigabyte,
                               .gradients = 0.8 * gigabyte,
                               .states = 2.4 * gigabyte,
                               .forward = 0.010,
                               .backward = 0.030});
    for (int m = 0; m < micro_batches; ++m) {
        rank.passes.push_back({0, blocks, false});
        rank.passes.push_back({0, blocks, true});
    }
    return rank;
}

TEST(OffloadCost, NothingMovesWhereAllFits) {
    const auto cost = offload_cost(rank_of(8, 4, 8 * 3.7 * gigabyte));
    ASSERT_TRUE(cost);
    EXPECT_EQ(cost->copied, 0);
    EXPECT_EQ(cost->on_host, 0);
    EXPECT_NEAR(cost->exposed, 0, 1e-9);
}

TEST(OffloadCost, OneBlockHasToFit) {
    EXPECT_FALSE(offload_cost(rank_of(8, 1, 1.1 * gigabyte))); // weights and gradients of one in its backward
    EXPECT_TRUE(offload_cost(rank_of(8, 1, 2 * gigabyte)));
}

// One micro-batch, two blocks, room for the weights of both and the gradients of one; the host updates: new weights
// come once, gradients go out once, and nothing of the states moves.
TEST(OffloadCost, CopiesOfASmallStep) {
    OffloadedRank rank = rank_of(2, 1, 1.7 * gigabyte);
    rank.host_update = 1e15;
    const auto cost = offload_cost(rank);
    ASSERT_TRUE(cost);
    EXPECT_EQ(cost->host_update_share, 1);
    EXPECT_NEAR(cost->copied, (2 * 0.4 + 2 * 0.8) * gigabyte, 1);
    EXPECT_NEAR(cost->on_host, 2 * 3.6 * gigabyte, 1);
    EXPECT_GE(cost->exposed, 0.0);
}

// Gradients that lie over weights are no chunks of their own: the host gets them with the weights.
TEST(OffloadCost, GradientsOverWeightsTakeNothing) {
    OffloadedRank rank = rank_of(2, 1, 0.9 * gigabyte);
    rank.host_update = 1e15;
    for (OffloadedRank::Block& block : rank.blocks) {
        block.gradients = 0;
        block.over_weights = true;
    }
    const auto cost = offload_cost(rank);
    ASSERT_TRUE(cost);
    EXPECT_EQ(cost->host_update_share, 1);
    EXPECT_NEAR(cost->copied, (2 * 0.4 + 2 * 0.4) * gigabyte, 1);
    EXPECT_NEAR(cost->on_host, 2 * 2.8 * gigabyte, 1);
}

// The fastest of those that the host has room for: with fewer updates by it, more stays on the device.
TEST(OffloadCost, KeepsToTheHostsMemory) {
    OffloadedRank rank = rank_of(8, 1, 20 * gigabyte);
    rank.host_update = 1e15;
    const auto fastest = offload_cost(rank);
    ASSERT_TRUE(fastest);
    rank.host = fastest->on_host - 1;
    const auto smaller = offload_cost(rank);
    ASSERT_TRUE(smaller);
    EXPECT_LE(smaller->on_host, rank.host);
    EXPECT_LT(smaller->host_update_share, fastest->host_update_share);
    rank.host = 0;
    EXPECT_FALSE(offload_cost(rank));
}

TEST(OffloadCost, LessMemoryNeverCostsLess) {
    double before = -1;
    for (const double share : {1.0, 0.8, 0.6, 0.4, 0.2, 0.1}) {
        const auto cost = offload_cost(rank_of(16, 4, share * 16 * 3.6 * gigabyte * 1.01));
        ASSERT_TRUE(cost);
        EXPECT_GE(cost->exposed, before - 0.01);
        before = cost->exposed;
    }
}

// Many blocks and micro-batches are taken together and cost much the same.
// Of a step of many micro-batches a few are looked at, and the others cost what the last of these does.
TEST(OffloadCost, LongStepsCostWhatTheirMicroBatchesDo) {
    for (const double share : {0.1, 0.3, 0.6}) {
        const double device = share * 16 * 3.6 * gigabyte;
        auto cost_of = [&](int micro_batches) { return offload_cost(rank_of(16, micro_batches, device)).value(); };
        const OffloadCost some = cost_of(12), more = cost_of(24); // all of them are looked at
        for (const int many : {240, 2400}) {
            SCOPED_TRACE(many);
            const OffloadCost all = cost_of(many);
            const double expected = more.seconds + (many - 24) * (more.seconds - some.seconds) / 12;
            EXPECT_NEAR(all.seconds, expected, 0.05 * expected);
            EXPECT_NEAR(all.on_host, more.on_host, 0.2 * more.on_host);
        }
    }
}

// However many blocks and micro-batches there are, what fits with one fits with all.
TEST(OffloadCost, WhatFitsDoesNotDependOnTheLengthOfAStep) {
    for (const int micro_batches : {1, 7, 100, 1000})
        EXPECT_TRUE(offload_cost(rank_of(400, micro_batches, 8 * gigabyte)));
}

// Stages of one rank that do not follow one another.
TEST(OffloadCost, StagesAreNotMixed) {
    OffloadedRank rank = rank_of(200, 0, 100 * gigabyte);
    for (int m = 0; m < 40; ++m)
        for (const bool backward : {false, true}) {
            rank.passes.push_back({0, 99, backward});
            rank.passes.push_back({99, 200, backward});
        }
    EXPECT_TRUE(offload_cost(rank));
}

// Too small for the model's data, with a host that is not.
TEST(Offload, IsChosenWhereNothingElseFits) {
    Setting setting(small_cluster(1, 1, 0.006), 6, 4);
    EXPECT_FALSE(plan_jointly(setting.model, {.offload = false}).fits());
    const JointResult found = plan_jointly(setting.model, {});
    ASSERT_TRUE(found.fits());
    const RankedPlan& best = found.best();
    EXPECT_TRUE(best.decisions.offload);
    EXPECT_GT(best.cost.ranks[0].elsewhere, 0);
    EXPECT_GE(best.cost.ranks[0].margin(), -1);
    EXPECT_NEAR(best.cost.terms.total(), best.cost.time, 1e-6 * best.cost.time);
    const Plan plan = plan_of(setting.model, best.decisions);
    EXPECT_EQ(plan.device_memory.count, 6'000'000);
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
}

TEST(Offload, NeedsAHost) {
    NodeKind lonely = node_of(1, 0.006);
    lonely.host_memory = {1'000'000};
    Setting setting(uniform_cluster(lonely, 1, {}), 6, 4);
    EXPECT_FALSE(plan_jointly(setting.model, {}).fits());
}

// On few devices it is looked at beside plans that fit, and never the slower choice.
TEST(Offload, IsNeverSlowerThanWithout) {
    for (const double gigabytes : {0.012, 0.02, 0.1}) {
        Setting setting(small_cluster(1, 2, gigabytes), 6, 8);
        const JointResult without = plan_jointly(setting.model, {.offload = false}),
                          with = plan_jointly(setting.model, {});
        ASSERT_TRUE(with.fits());
        if (without.fits()) {
            EXPECT_LE(with.best().cost.time, without.best().cost.time);
        }
    }
}

} // namespace
} // namespace tutti

#include "planner/offloading.h"

#include <gtest/gtest.h>

namespace tutti {
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
    EXPECT_EQ(cost->at_home, 0);
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
    EXPECT_EQ(cost->home_updates, 1);
    EXPECT_NEAR(cost->copied, (2 * 0.4 + 2 * 0.8) * gigabyte, 1);
    EXPECT_NEAR(cost->at_home, 2 * 3.6 * gigabyte, 1);
    EXPECT_GE(cost->exposed, 0.0);
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
TEST(OffloadCost, LongStepsAreTakenTogether) {
    const double device = 0.3 * 64 * 3.6 * gigabyte;
    const auto exact = offload_cost(rank_of(64, 16, device));
    const auto together = offload_cost(rank_of(64, 80, device)); // five times the passes, a third of the moments each
    ASSERT_TRUE(exact && together);
    EXPECT_NEAR(together->at_home, exact->at_home, 0.2 * exact->at_home);
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

} // namespace
} // namespace tutti

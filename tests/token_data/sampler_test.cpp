#include "data/sampler.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tutti {

using namespace data;
namespace {

std::vector<std::int64_t> epoch_of(const Sampler& sampler, std::int64_t samples, std::int64_t epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < samples; ++i) order.push_back(sampler.at(epoch * samples + i));
    return order;
}

TEST(Sampler, EveryEpochUsesEverySampleOnce) {
    for (std::int64_t samples = 1; samples <= 200; ++samples)
        for (std::int64_t epoch : {0, 1, 1000}) {
            std::vector<bool> seen(static_cast<std::size_t>(samples));
            for (std::int64_t sample : epoch_of(Sampler(samples, 3, false), samples, epoch)) {
                ASSERT_GE(sample, 0);
                ASSERT_LT(sample, samples);
                ASSERT_FALSE(seen[static_cast<std::size_t>(sample)]) << samples;
                seen[static_cast<std::size_t>(sample)] = true;
            }
        }
}

TEST(Sampler, OrdersDifferByEpochAndBySeed) {
    for (std::int64_t samples : {20, 64, 100, 1000}) {
        const Sampler one(samples, 1, false), two(samples, 2, false);
        EXPECT_NE(epoch_of(one, samples, 0), epoch_of(one, samples, 1));
        EXPECT_NE(epoch_of(one, samples, 0), epoch_of(two, samples, 0));
        EXPECT_EQ(epoch_of(one, samples, 5), epoch_of(Sampler(samples, 1, false), samples, 5));
    }
}

// A shuffle has no trend: the rank correlation with the identity is about 1 / sqrt(n).
TEST(Sampler, OrdersHaveNoTrend) {
    constexpr std::int64_t samples = 10'007;
    const Sampler sampler(samples, 11, false);
    double sum = 0;
    constexpr double mean = (samples - 1) / 2.0;
    for (std::int64_t i = 0; i < samples; ++i)
        sum += (static_cast<double>(i) - mean) * (static_cast<double>(sampler.at(i)) - mean);
    EXPECT_LT(std::abs(sum) / (samples * (double(samples) * samples - 1) / 12), 0.05);
}

TEST(Sampler, HugeSourcesNeedNoTable) {
    const std::int64_t samples = (std::int64_t{1} << 62) + 12345;
    const Sampler sampler(samples, 1, false);
    for (std::int64_t i = 0; i < 1000; ++i) {
        EXPECT_GE(sampler.at(i), 0);
        EXPECT_LT(sampler.at(i), samples);
    }
}

TEST(Sampler, AnOrderedSourceIsUsedInOrderAndStartsAgain) {
    const Sampler sampler(3, 9, true);
    EXPECT_EQ(epoch_of(sampler, 7, 0), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0}));
    EXPECT_EQ(sampler.epoch(6), 2);
}

// The order is part of every checkpoint's meaning: it may not change between versions.
TEST(Sampler, TheOrderIsTheOneItAlwaysWas) {
    EXPECT_EQ(epoch_of(Sampler(10, 1, false), 10, 0), (std::vector<std::int64_t>{0, 2, 7, 9, 6, 1, 4, 8, 5, 3}));
}

TEST(Sampler, NothingToSampleIsABug) {
    EXPECT_THROW(Sampler(0, 1, false), Bug);
    EXPECT_THROW(Sampler(1, 1, false).at(-1), Bug);
}

} // namespace
} // namespace tutti

#include "comm/measure.h"

#include "comm/agree.h"
#include "comm/support/ranks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {

using namespace comm;
namespace {

TEST(ClockOffset, IsFoundForEveryRank) {
    run_ranks(3, [](World& world) {
        const double ahead = 1000.0 * world.rank() - 500.0 * (world.rank() == 2 ? 7 : 0);
        const Seconds offset = clock_offset(world.all(), [&] { return Seconds{steady_now().count + ahead}; });
        EXPECT_NEAR(offset.count, ahead, 1.0); // half of a round trip, on a machine that has other things to do
    });
}

TEST(ClockOffset, RanksOfOneClockAgreeExactly) {
    run_ranks(4, [](World& world) { EXPECT_EQ(clock_offset(world.all()), Seconds{0}); });
}

TEST(LinkSpeed, IsTheSameOnAllRanksAlsoOnOneWithoutANeighbour) {
    for (const int ranks : {1, 2, 3})
        run_ranks(ranks, [&](World& world) {
            const LinkSpeed speed = measure_link(world.all());
            EXPECT_GT(speed.bytes, 0);
            EXPECT_GE(speed.latency, 0);
            for (const std::string& other : gather_texts(world.all(), std::to_string(speed.bytes)))
                EXPECT_EQ(other, std::to_string(speed.bytes));
        });
}

TEST(GatherToFirst, GivesEveryTextToRankZeroAlone) {
    run_ranks(4, [](World& world) {
        const std::string mine(static_cast<std::size_t>(world.rank() * 3), static_cast<char>('a' + world.rank()));
        const auto texts = gather_to_first(world.all(), mine);
        if (world.rank() == 0)
            EXPECT_EQ(texts, (std::vector<std::string>{"", "bbb", "cccccc", "ddddddddd"}));
        else
            EXPECT_TRUE(texts.empty());
    });
}

} // namespace
} // namespace tutti

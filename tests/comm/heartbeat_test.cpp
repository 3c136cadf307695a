#include "comm/heartbeat.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti {

using namespace comm;
namespace {

using namespace std::chrono_literals;

// Lives through so many seconds, one at a time, from `now` on.
void live(Heartbeat& heartbeat, Clock::time_point& now, int seconds) {
    for (int i = 0; i < seconds; ++i) heartbeat.go_on(now += 1s);
}

TEST(Heartbeat, TakesARankThatSaysNothingToBeLost) {
    Heartbeat heartbeat(3, Seconds{30});
    auto now = Clock::now() + 10s;
    live(heartbeat, now, 1);
    EXPECT_TRUE(heartbeat.should_ask(1));
    EXPECT_FALSE(heartbeat.should_ask(1)); // it was
    live(heartbeat, now, 29);
    EXPECT_TRUE(heartbeat.is_silent(1));
    EXPECT_FALSE(heartbeat.is_lost(1));
    live(heartbeat, now, 1);
    EXPECT_TRUE(heartbeat.is_lost(1));
    EXPECT_FALSE(heartbeat.is_lost(2)); // nobody asked it
    heartbeat.heard(1);
    EXPECT_FALSE(heartbeat.is_silent(1));
}

TEST(Heartbeat, AsksAgainWhenAnAnswerIsOld) {
    Heartbeat heartbeat(2, Seconds{30});
    auto now = Clock::now() + 10s;
    for (int round = 0; round < 20; ++round) {
        EXPECT_TRUE(heartbeat.should_ask(1));
        live(heartbeat, now, 2);
        heartbeat.heard(1);
        live(heartbeat, now, 4);
        EXPECT_FALSE(heartbeat.should_ask(1));
        live(heartbeat, now, 1);
    }
    EXPECT_FALSE(heartbeat.is_lost(1));
}

TEST(Heartbeat, CountsNoTimeInWhichItDidNotRunItself) {
    Heartbeat heartbeat(2, Seconds{30});
    auto now = Clock::now() + 10s;
    heartbeat.go_on(now);
    heartbeat.should_ask(1);
    for (int i = 0; i < 10; ++i) heartbeat.go_on(now += 1h); // stopped ten times
    EXPECT_FALSE(heartbeat.is_lost(1));
    live(heartbeat, now, 10);
    EXPECT_TRUE(heartbeat.is_lost(1));
}

TEST(Heartbeat, LooksOnceInAWhile) {
    Heartbeat heartbeat(2, Seconds{30});
    const auto now = Clock::now() + 10s;
    EXPECT_TRUE(heartbeat.go_on(now));
    EXPECT_FALSE(heartbeat.go_on(now + 999ms));
    EXPECT_EQ(heartbeat.next_look(), now + 1s);
    EXPECT_TRUE(heartbeat.go_on(now + 1s));
}

TEST(Heartbeat, OfAGroupReachesEveryMemberFromSeveralOthers) {
    EXPECT_EQ(members_to_ask(0, 1), std::vector<int>{});
    EXPECT_EQ(members_to_ask(1, 2), std::vector<int>{0});
    EXPECT_EQ(members_to_ask(5, 7), (std::vector<int>{6, 0, 2}));
    for (int size : {2, 3, 8, 21}) {
        std::vector<std::set<int>> askers(static_cast<std::size_t>(size));
        for (int rank = 0; rank < size; ++rank)
            for (int member : members_to_ask(rank, size)) askers[static_cast<std::size_t>(member)].insert(rank);
        for (int rank = 0; rank < size; ++rank) {
            EXPECT_FALSE(askers[static_cast<std::size_t>(rank)].contains(rank));
            EXPECT_EQ(askers[static_cast<std::size_t>(rank)].size(), members_to_ask(rank, size).size());
        }
    }
}

} // namespace
} // namespace tutti

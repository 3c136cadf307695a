#include "comm/threads/thread_world.h"

#include "comm/support/exercises.h"
#include "comm/support/ranks.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(ThreadWorld, Ranks, testing::Range(1, 6));

TEST_P(Ranks, GetWhatPlainLoopsGive) {
    run_ranks(GetParam(), [](World& world) { exercise_operations(world); });
}

TEST_P(Ranks, ExchangeMessagesInOrder) {
    run_ranks(GetParam(), [](World& world) { exercise_messages(world); });
}

TEST_P(Ranks, HaveHundredsOfOperationsUnderWay) {
    for (const std::uint64_t seed : {1, 2})
        run_ranks(GetParam(), [&](World& world) { exercise_many_at_once(world, seed, 300); });
}

TEST(ThreadWorld, ShowsFinishedOperationsToAnObserver) {
    const auto worlds = make_thread_worlds(2);
    std::mutex mutex;
    std::vector<OperationRecord> records;
    worlds[0]->observe([&](const OperationRecord& record) {
        const std::lock_guard lock(mutex);
        records.push_back(record);
    });
    const auto left = worlds[0]->group("pipe", {0, 1}, 1), right = worlds[1]->group("pipe", {0, 1}, 1);
    std::vector<std::byte> out(24), in(24);
    for (int i = 0; i < 2; ++i) {
        const Ticket sent = left->send(out, 1), received = right->receive(in, 0);
        right->wait(received);
        left->wait(sent);
    }
    while (true) { // the last word may come after the wait has returned
        const std::lock_guard lock(mutex);
        if (records.size() == 2) break;
    }
    EXPECT_EQ(records[1].group, "pipe");
    EXPECT_EQ(records[1].operation, "send");
    EXPECT_EQ(records[1].sequence, 2);
    EXPECT_EQ(records[1].bytes, Bytes{24});
    EXPECT_EQ(records[1].peer, 1);
    EXPECT_LE(records[0].begin, records[0].end);
    EXPECT_LE(records[0].end, records[1].end);
}

TEST(ThreadWorld, GroupsOfOneChannelMayShareOneRank) {
    run_ranks(3, [](World& world) {
        std::vector<float> low{1}, high{10};
        const auto sum = [](Group& group, std::vector<float>& data) {
            return group.all_reduce(std::as_writable_bytes(std::span(data)), DType::float32, Combine::sum);
        };
        const auto first = world.rank() < 2 ? world.group("low", {0, 1}, 5) : nullptr;
        const auto second = world.rank() > 0 ? world.group("high", {1, 2}, 5) : nullptr;
        const Ticket one = first ? sum(*first, low) : 0, other = second ? sum(*second, high) : 0;
        if (second) second->wait(other);
        if (first) first->wait(one);
        EXPECT_EQ(low[0], first ? 2 : 1);
        EXPECT_EQ(high[0], second ? 20 : 10);
    });
}

} // namespace
} // namespace tutti

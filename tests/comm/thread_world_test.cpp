#include "comm/threads/thread_world.h"

#include "comm/support/exercises.h"
#include "comm/support/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {

using namespace comm;
using namespace comm::threads;
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

// More than there is room for at a time, some of them on one rank alone.
TEST(ThreadWorld, LargeReductionsTakeTurns) {
    constexpr int ranks = 3, count = 20;
    run_ranks(ranks, [](World& world) {
        constexpr std::int64_t elements = 700'000;
        const auto group = world.group("holders", {0, 1, 2}, 1);
        std::vector<std::vector<float>> all(count), mine(count);
        std::vector<Ticket> tickets;
        for (int i = 0; i < count; ++i) {
            const auto mark = static_cast<float>(i + 1);
            all[i].assign(i % 4 == 1 ? 3 : elements, mark * static_cast<float>(world.rank() + 1));
            const std::span bytes = std::as_writable_bytes(std::span(all[i]));
            if (i % 4 == 3) { // every slice is one rank's
                const int owner = i % ranks;
                std::vector<std::int64_t> counts(ranks, 0);
                counts[owner] = std::ssize(bytes);
                mine[i].resize(owner == world.rank() ? elements : 0);
                tickets.push_back(group->reduce_scatter(bytes, std::as_writable_bytes(std::span(mine[i])), counts,
                                                        DType::float32, Combine::sum));
            } else {
                tickets.push_back(group->all_reduce(bytes, DType::float32, Combine::sum));
            }
        }
        for (int i = 0; i < count; ++i) {
            group->wait(tickets[i]);
            const std::vector<float>& sums = i % 4 == 3 ? mine[i] : all[i];
            EXPECT_EQ(std::ranges::count(sums, 6 * static_cast<float>(i + 1)), std::ssize(sums)) << i;
        }
    });
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

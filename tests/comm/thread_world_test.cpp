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

} // namespace
} // namespace tutti

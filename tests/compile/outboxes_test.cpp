#include "compile/outboxes.h"

#include "schedule/families.h"
#include "schedule/lower.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {

using namespace compile;
using namespace schedule;
namespace {

std::vector<std::vector<std::int32_t>> sizes_of(const ScheduleParameters& parameters) {
    const Schedule schedule = make_schedule(parameters);
    return outbox_sizes(lower(schedule, uniform_costs(schedule.parameters, StageCosts{})));
}

TEST(Outboxes, TwoMessagesAreEnoughForOneForwardOneBackward) {
    for (const auto& rank : sizes_of({.family = "1f1b", .ranks = 4, .micro_batches = 8}))
        for (std::int32_t size : rank) EXPECT_EQ(size, 2);
}

TEST(Outboxes, EveryFamilyRunsToItsEnd) {
    for (const Family& family : families()) {
        SCOPED_TRACE(family.name);
        for (const auto& rank : sizes_of({.family = std::string(family.name), .ranks = 4, .micro_batches = 16}))
            for (std::int32_t size : rank) EXPECT_LE(size, 16);
    }
}

// A rank that makes four messages before the other takes the first, which itself waits for what follows them.
TEST(Outboxes, GrowWhereTwoWouldBeADeadlock) {
    std::vector<Program> ranks(2);
    for (Program& rank : ranks) rank.stages.push_back({});
    auto add = [](Program& rank, TaskKind kind, int peer = -1, std::vector<std::int32_t> waits = {}) {
        rank.step.push_back({.kind = kind, .peer = peer, .waits = std::move(waits)});
        return static_cast<std::int32_t>(rank.step.size()) - 1;
    };
    ranks[0].stages.push_back({.stage = 2});
    for (int i = 0; i < 4; ++i) add(ranks[0], TaskKind::send, 1, {add(ranks[0], TaskKind::forward)});
    // What rank 1 asks for first comes last, over another way.
    ranks.push_back({});
    ranks[2].stages.push_back({});
    add(ranks[0], TaskKind::send, 2, {add(ranks[0], TaskKind::forward)});
    ranks[0].step[8].local = ranks[0].step[9].local = 1;
    add(ranks[2], TaskKind::forward, -1, {add(ranks[2], TaskKind::receive, 0)});
    add(ranks[2], TaskKind::send, 1, {1});
    add(ranks[1], TaskKind::forward, -1, {add(ranks[1], TaskKind::receive, 2)});
    for (int i = 0; i < 4; ++i) add(ranks[1], TaskKind::forward, -1, {add(ranks[1], TaskKind::receive, 0)});
    EXPECT_EQ(outbox_sizes(ranks)[0][0], 4);
}

} // namespace
} // namespace tutti

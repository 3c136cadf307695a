// Who computes where, on machines written by hand.
#include "cores/assign.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

namespace tutti::cores {
namespace {

using Units = std::vector<int>;

// Cores 0, 1, .. of every node, numbered as Linux does: first one unit of every core, then their siblings.
Topology machine_of(int nodes, int cores_each, int units_each) {
    Topology topology;
    const int cores = nodes * cores_each;
    for (int sibling = 0; sibling < units_each; ++sibling)
        for (int core = 0; core < cores; ++core)
            topology.units.push_back({.number = sibling * cores + core, .core = core, .node = core / cores_each});
    return topology;
}

std::vector<Units> units_of(const Assignment& assignment) {
    std::vector<Units> units;
    for (const RankCores& rank : assignment.ranks) units.push_back(rank.units);
    return units;
}

// No thread to a core that has one while another core has none: on cores with threads pinned to them.
void expect_even(const Topology& topology, const Assignment& assignment) {
    std::map<int, int> core_of, busy;
    for (const Unit& unit : topology.units) {
        core_of[unit.number] = unit.core;
        busy[unit.core];
    }
    std::multiset<int> taken;
    for (const RankCores& rank : assignment.ranks)
        for (const Units& thread : rank.threads) {
            ++busy[core_of[thread.front()]];
            taken.insert(thread.front());
        }
    int least = 1000, most = 0;
    for (const auto& [core, threads] : busy) {
        least = std::min(least, threads);
        most = std::max(most, threads);
    }
    EXPECT_TRUE(most <= 1 || least >= 1);
    EXPECT_EQ(taken.size(), std::set<int>(taken.begin(), taken.end()).size()); // no unit twice
}

TEST(Assign, GivesEveryThreadACoreAndEveryRankANeighbourhood) {
    const Assignment found = assign(machine_of(1, 4, 1), std::vector{2, 2}, Bind::automatic);
    EXPECT_EQ(found.why_not, "");
    EXPECT_EQ(found.ranks[0], (RankCores{{0, 1}, {{0}, {1}}}));
    EXPECT_EQ(found.ranks[1], (RankCores{{2, 3}, {{2}, {3}}}));
}

// The siblings of a core idle, or serve the rank's other threads.
TEST(Assign, LeavesHyperthreadsToTheSecondPlace) {
    const Assignment found = assign(machine_of(2, 4, 2), std::vector{4, 4}, Bind::automatic);
    EXPECT_EQ(found.ranks[0], (RankCores{{0, 1, 2, 3, 8, 9, 10, 11}, {{0, 8}, {1, 9}, {2, 10}, {3, 11}}}));
    EXPECT_EQ(found.ranks[1], (RankCores{{4, 5, 6, 7, 12, 13, 14, 15}, {{4, 12}, {5, 13}, {6, 14}, {7, 15}}}));
}

TEST(Assign, UsesHyperthreadsWhereThereAreMoreThreadsThanCores) {
    const Topology topology = machine_of(2, 2, 2); // cores 0 1 | 2 3, siblings 4 5 | 6 7
    const Assignment full = assign(topology, std::vector{4, 4}, Bind::automatic);
    EXPECT_EQ(full.ranks[0], (RankCores{{0, 1, 4, 5}, {{0}, {1}, {4}, {5}}})); // its cores first
    EXPECT_EQ(full.ranks[1], (RankCores{{2, 3, 6, 7}, {{2}, {3}, {6}, {7}}}));
    const Assignment part = assign(topology, std::vector{3, 3}, Bind::core);
    EXPECT_EQ(part.ranks[0], (RankCores{{0, 1, 5}, {{0}, {1}, {5}}})); // every other core takes a second thread
    EXPECT_EQ(part.ranks[1], (RankCores{{2, 3, 7}, {{2}, {3}, {7}}}));
}

TEST(Assign, SharesCoresOutWhereThreadsDoNotFillThem) {
    const Assignment found = assign(machine_of(1, 8, 1), std::vector{2, 2, 2}, Bind::automatic);
    EXPECT_EQ(units_of(found), (std::vector<Units>{{0, 1}, {2, 3, 4}, {5, 6, 7}}));
    EXPECT_EQ(found.ranks[0].threads, (std::vector<Units>{{0}, {1}}));
    EXPECT_TRUE(found.ranks[1].threads.empty()); // the system chooses two of three
    const Assignment exact = assign(machine_of(1, 8, 1), std::vector{2, 2, 2}, Bind::core);
    EXPECT_EQ(units_of(exact), (std::vector<Units>{{0, 1}, {2, 3}, {5, 6}}));
}

// 4 + 4 on one node and 4 on the other, though an even line would cut the second rank in two.
TEST(Assign, KeepsRanksOnOneMemoryNodeIfThatCanBe) {
    const auto ranks = units_of(assign(machine_of(2, 8, 1), std::vector{4, 4, 4}, Bind::core));
    auto node_of = [](int unit) { return unit / 8; };
    for (const Units& rank : ranks) EXPECT_EQ(node_of(rank.front()), node_of(rank.back()));
    EXPECT_EQ(units_of(assign(machine_of(2, 4, 1), std::vector{2}, Bind::automatic)),
              (std::vector<Units>{{0, 1, 2, 3}}));
    EXPECT_EQ(units_of(assign(machine_of(2, 4, 1), std::vector{2, 2}, Bind::automatic)), // each has a node's memory
              (std::vector<Units>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(Assign, LetsARankSpanNodesThatIsTooLargeForOne) {
    const Assignment found = assign(machine_of(2, 8, 1), std::vector{5, 5, 5}, Bind::automatic);
    EXPECT_EQ(units_of(found), (std::vector<Units>{{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11, 12, 13, 14, 15}}));
    EXPECT_EQ(assign(machine_of(2, 2, 1), std::vector{4}, Bind::automatic).ranks[0].threads.size(), 4u);
}

// As a container with a cpuset sees it: no siblings, odd numbers, on two nodes.
TEST(Assign, KeepsToTheCoresOfAContainer) {
    const Topology odd = within(machine_of(2, 4, 2), {1, 3, 5});
    EXPECT_EQ(count_cores(odd), 3);
    EXPECT_EQ(units_of(assign(odd, std::vector{1, 1}, Bind::automatic)), (std::vector<Units>{{1, 3}, {5}}));
    EXPECT_EQ(units_of(assign(odd, std::vector{1, 1, 1}, Bind::automatic)), (std::vector<Units>{{1}, {3}, {5}}));
    EXPECT_EQ(units_of(assign(odd, std::vector{3}, Bind::automatic)), (std::vector<Units>{{1, 3, 5}}));
}

TEST(Assign, BindsNobodyWhereRanksHaveToShareCores) {
    const Assignment found = assign(machine_of(1, 2, 1), std::vector{1, 1, 1}, Bind::automatic);
    EXPECT_EQ(found.why_not, "3 threads share 2 cores");
    EXPECT_EQ(units_of(found), (std::vector<Units>{{}, {}, {}}));
    EXPECT_NE(assign(machine_of(1, 2, 2), std::vector{5}, Bind::core).why_not, "");
    EXPECT_EQ(assign({}, std::vector{1}, Bind::automatic).ranks.size(), 1u);
    EXPECT_NE(assign({}, std::vector{1}, Bind::automatic).why_not, "");
}

// A limited time is taken on any core, which others use, too.
TEST(Assign, LeavesCoresToOthersWhereTimeIsLimited) {
    Topology limited = machine_of(1, 8, 1);
    limited.time = 2.5;
    EXPECT_EQ(count_cores(limited), 2);
    EXPECT_EQ(assign(limited, std::vector{1, 1}, Bind::automatic).why_not,
              "a container limits the time on 8 cores to that of 2.5, and others may use them");
    EXPECT_EQ(units_of(assign(limited, std::vector{1, 1}, Bind::core)), (std::vector<Units>{{0}, {4}}));
    limited.time = 8;
    EXPECT_EQ(assign(limited, std::vector{8}, Bind::automatic).why_not, "");
}

TEST(Assign, BindsToMemoryNodesWhereAsked) {
    const Topology topology = machine_of(2, 2, 2);
    const Units first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
    EXPECT_EQ(units_of(assign(topology, std::vector{1, 1}, Bind::numa)), (std::vector<Units>{first, second}));
    EXPECT_EQ(units_of(assign(topology, std::vector{1, 1, 1, 1}, Bind::numa)),
              (std::vector<Units>{first, first, second, second}));
    const auto crowd = units_of(assign(topology, std::vector<int>(20, 1), Bind::numa)); // more than there are units
    EXPECT_EQ(crowd.front(), first);
    EXPECT_EQ(crowd.back(), second);
    EXPECT_EQ(units_of(assign(topology, std::vector{4}, Bind::none)), (std::vector<Units>{{}}));
}

// Every count of ranks and threads on several machines: the properties that all of them have.
TEST(Assign, NeverPutsTwoThreadsOnACoreWhileAnotherIdles) {
    for (const Topology& topology :
         {machine_of(1, 3, 1), machine_of(2, 4, 2), machine_of(2, 3, 2), machine_of(4, 2, 1)})
        for (int ranks = 1; ranks <= 9; ++ranks)
            for (int first = 1; first <= 5; ++first)
                for (int others = 1; others <= 3; ++others) {
                    std::vector<int> threads(static_cast<std::size_t>(ranks), others);
                    threads.front() = first;
                    SCOPED_TRACE(fmt::format("{} units, {} ranks, {} and {} threads", topology.units.size(), ranks,
                                             first, others));
                    const Assignment pinned = assign(topology, threads, Bind::core);
                    const int all = std::accumulate(threads.begin(), threads.end(), 0);
                    ASSERT_EQ(pinned.why_not.empty(), all <= static_cast<int>(topology.units.size()));
                    if (!pinned.why_not.empty()) continue;
                    for (std::size_t rank = 0; rank < threads.size(); ++rank)
                        ASSERT_EQ(pinned.ranks[rank].threads.size(), static_cast<std::size_t>(threads[rank]));
                    expect_even(topology, pinned);
                    // Shares are at least as large as what is pinned, and no unit is in two of them.
                    std::multiset<int> shared;
                    const Assignment free = assign(topology, threads, Bind::automatic);
                    for (std::size_t rank = 0; rank < threads.size(); ++rank) {
                        ASSERT_GE(static_cast<int>(free.ranks[rank].units.size()), threads[rank]);
                        shared.insert(free.ranks[rank].units.begin(), free.ranks[rank].units.end());
                    }
                    EXPECT_EQ(shared.size(), std::set<int>(shared.begin(), shared.end()).size());
                }
}

TEST(Bind, HasNames) {
    for (const Bind bind : {Bind::automatic, Bind::none, Bind::core, Bind::numa})
        EXPECT_EQ(parse_bind(name_of(bind)), bind);
    EXPECT_EQ(parse_bind("socket"), std::nullopt);
}

} // namespace
} // namespace tutti::cores

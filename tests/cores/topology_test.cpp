// What limits the cores of a process, on machines given as the kernel's files tell of them, and this machine.
#include "cores/binding.h"
#include "cores/topology.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <map>
#include <set>
#include <thread>

namespace tutti::cores {
namespace {

double limit_with(const std::map<std::string, std::string>& files) {
    return time_limit([&](const std::string& path) -> std::optional<std::string> {
        const auto found = files.find(path);
        return found == files.end() ? std::nullopt : std::optional(found->second);
    });
}

TEST(TimeLimit, IsThatOfTheContainer) {
    EXPECT_EQ(limit_with({}), 0);
    EXPECT_EQ(limit_with({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}}), 2.5);
    EXPECT_EQ(limit_with({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "max 100000\n"}}), 0);
    EXPECT_EQ(limit_with({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "100000"}}), 0); // cut off
    EXPECT_EQ(limit_with({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "100000 0\n"}}), 0);
}

TEST(TimeLimit, IsTheSmallestOfThoseAbove) {
    EXPECT_EQ(limit_with({{"/proc/self/cgroup", "0::/jobs/7\n"},
                          {"/sys/fs/cgroup/jobs/7/cpu.max", "max 100000\n"},
                          {"/sys/fs/cgroup/jobs/cpu.max", "400000 100000\n"},
                          {"/sys/fs/cgroup/cpu.max", "800000 100000\n"}}),
              4);
}

TEST(TimeLimit, IsFoundInVersion1) {
    EXPECT_EQ(limit_with({{"/proc/self/cgroup", "4:cpu,cpuacct:/docker/ab\n2:cpuset:/\n"},
                          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"},
                          {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
              1.5);
    EXPECT_EQ(limit_with({{"/proc/self/cgroup", "4:cpu,cpuacct:/\n"},
                          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                          {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
              0);
}

TEST(Ranges, AreShort) {
    EXPECT_EQ(to_ranges({}), "");
    EXPECT_EQ(to_ranges({3}), "3");
    EXPECT_EQ(to_ranges({8, 0, 1, 2, 10, 9}), "0-2,8-10");
}

TEST(Topology, OfThisMachineHasTheUnitsOfThisProcess) {
    std::set<int> known;
    for (const Unit& unit : machine().units) known.insert(unit.number);
    for (const int unit : own_units()) EXPECT_TRUE(known.contains(unit)) << unit;
    EXPECT_GE(usable_cores(), 1);
    EXPECT_LE(usable_cores(), static_cast<int>(own_units().size()));
}

// The threads of later parallel regions stay where they were put, and what the thread starts is not held to one core.
TEST(Binding, HoldsOpenMpThreadsAndNotWhatIsStartedBesideThem) {
    const std::vector<int> units = own_units();
    if (units.size() < 2) GTEST_SKIP() << "one core";
    std::thread rank([&] {
        const RankCores cores{{units[0], units[1]}, {{units[0]}, {units[1]}}};
        bind(cores, false);
        EXPECT_EQ(own_units(), cores.units);
        std::vector<int> second;
        omp_set_num_threads(2);
#pragma omp parallel
        if (omp_get_thread_num() == 1) second = own_units();
        EXPECT_EQ(second, std::vector{units[1]});
        std::thread beside([&] { EXPECT_EQ(own_units(), cores.units); });
        beside.join();
    });
    rank.join();
    EXPECT_EQ(own_units(), units); // another rank's thread
}

TEST(Binding, IsDescribed) {
    EXPECT_EQ(describe({.units = {{0, 1, 2}}, .thread_each = true}), "0-2, a thread on each");
    EXPECT_EQ(describe({.units = {{0, 1}, {2, 3}}}), "of the ranks: 0-1; 2-3");
    EXPECT_EQ(describe({.units = std::vector<std::vector<int>>(9, {0})}), "of the ranks: 0; 0; 0; 0; 0; 0; 0; 0; ...");
    EXPECT_EQ(describe({.units = {{}}, .why_not = "--bind is none"}), "the system places threads: --bind is none");
}

} // namespace
} // namespace tutti::cores

// What a run may still take, on machines given as the kernel's files tell of them.
#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti {
namespace {

using Files = std::map<std::string, std::string>;

std::optional<Bytes> left_with(const Files& files) {
    return left_memory([&](const std::string& path) -> std::optional<std::string> {
        const auto found = files.find(path);
        return found == files.end() ? std::nullopt : std::optional(found->second);
    });
}

const std::string machine = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n";
constexpr std::int64_t available = std::int64_t{20'000'000} * 1024;

TEST(FreeMemory, IsWhatIsAvailableAndNotWhatTheMachineHas) {
    EXPECT_EQ(left_with({}), std::nullopt);
    EXPECT_EQ(left_with({{"/proc/meminfo", "MemTotal: 24000000 kB\n"}}), std::nullopt);
    EXPECT_EQ(left_with({{"/proc/meminfo", machine}}), Bytes{available});
}

TEST(FreeMemory, HeedsTheLimitOfAContainerWithVersion2) {
    Files files = {{"/proc/meminfo", machine},
                   {"/proc/self/cgroup", "0::/\n"},
                   {"/sys/fs/cgroup/memory.max", "8000000000\n"},
                   {"/sys/fs/cgroup/memory.current", "3000000000\n"}};
    EXPECT_EQ(left_with(files), Bytes{5'000'000'000});
    files["/sys/fs/cgroup/memory.stat"] = "anon 900000000\nfile 2100000000\ninactive_file 1500000000\nactive_file "
                                          "500000000\n"; // which the kernel takes back
    EXPECT_EQ(left_with(files), Bytes{7'000'000'000});
    files["/sys/fs/cgroup/memory.max"] = "max\n";
    EXPECT_EQ(left_with(files), Bytes{available});
    files["/sys/fs/cgroup/memory.max"] = "2000000000\n"; // lowered below what is taken
    files["/sys/fs/cgroup/memory.stat"] = "";
    EXPECT_EQ(left_with(files), Bytes{0});
}

TEST(FreeMemory, HeedsTheSmallestOfTheLimitsAbove) {
    EXPECT_EQ(left_with({{"/proc/meminfo", machine},
                         {"/proc/self/cgroup", "0::/jobs.slice/job_7.scope\n"},
                         {"/sys/fs/cgroup/jobs.slice/job_7.scope/memory.max", "max\n"},
                         {"/sys/fs/cgroup/jobs.slice/job_7.scope/memory.current", "100\n"},
                         {"/sys/fs/cgroup/jobs.slice/memory.max", "4000000000\n"},
                         {"/sys/fs/cgroup/jobs.slice/memory.current", "1000000000\n"}}),
              Bytes{3'000'000'000});
}

TEST(FreeMemory, HeedsVersion1WhoseContainersNameGroupsThatTheyDoNotSee) {
    const Files files = {{"/proc/meminfo", machine},
                         {"/proc/self/cgroup", "11:cpu,cpuacct:/docker/ab\n7:memory:/docker/ab\n0::/docker/ab\n"},
                         {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "6000000000\n"},
                         {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "2500000000\n"},
                         {"/sys/fs/cgroup/memory/memory.stat",
                          "inactive_file 1\ntotal_inactive_file 400000000\ntotal_active_file 100000000\n"}};
    EXPECT_EQ(left_with(files), Bytes{4'000'000'000});
    Files unlimited = files; // as version 1 writes it
    unlimited["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n";
    EXPECT_EQ(left_with(unlimited), Bytes{available});
}

} // namespace
} // namespace tutti

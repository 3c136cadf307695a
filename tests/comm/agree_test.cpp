#include "comm/agree.h"

#include "support/thread_ranks.h"

#include <gtest/gtest.h>

#include <atomic>

namespace tutti {

using namespace comm;
using namespace test;
namespace {

TEST(Agree, WordsReachAllRanks) {
    const auto ends = test::run_ranks(4, [](Group& group) {
        const std::string mine(static_cast<std::size_t>(3 * group.rank()), static_cast<char>('a' + group.rank()));
        EXPECT_EQ(gather_texts(group, mine), (std::vector<std::string>{"", "bbb", "cccccc", "ddddddddd"}));
        EXPECT_EQ(gather_texts(group, ""), std::vector<std::string>(4));
        EXPECT_EQ(broadcast_text(group, mine, 2), "cccccc");
        EXPECT_EQ(broadcast_text(group, mine), "");
        EXPECT_EQ(first_decides(group, [&] { return fmt::format("by {}", group.rank()); }), "by 0");
        barrier(group);
    });
    EXPECT_EQ(ends, std::vector<std::string>(4));
}

TEST(Agree, OneFailureIsTheFailureOfAll) {
    std::atomic<int> done = 0;
    auto failing = [&](int culprit, auto failure) {
        return test::run_ranks(3, [&, culprit](Group& group) {
            agree(group, [&] {
                ++done;
                if (group.rank() >= culprit) throw failure;
            });
            ADD_FAILURE() << "rank " << group.rank() << " went on";
        });
    };
    EXPECT_EQ(failing(1, WorldError("the disk is full")),
              std::vector<std::string>(3, "WorldError: rank 1: the disk is full"));
    EXPECT_EQ(failing(2, Error("no such file")), std::vector<std::string>(3, "Error: rank 2: no such file"));
    EXPECT_EQ(failing(0, Error("no such file")), std::vector<std::string>(3, "Error: no such file"));
    EXPECT_EQ(failing(1, Bug("a defect")), std::vector<std::string>(3, "another: rank 1: a defect"));
    EXPECT_EQ(done, 12);
    const auto ends =
        test::run_ranks(3, [](Group& group) { first_does(group, [] { throw WorldError("the disk is full"); }); });
    EXPECT_EQ(ends, std::vector<std::string>(3, "WorldError: the disk is full"));
}

} // namespace
} // namespace tutti

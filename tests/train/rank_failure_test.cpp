#include "train/rank_failure.h"

#include "support/thread_ranks.h"
#include "train/device_work.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace train;
namespace {

TEST(RankFailure, IsToldToAllRanksWhenTheyShare) {
    const std::vector<std::string> ends = test::run_ranks(3, [](comm::Group& group) {
        RankFailure failure;
        if (group.rank() == 1) failure.keep([] { fail("the file is damaged"); });
        if (group.rank() == 1) failure.keep([] { fail("a consequence of it"); });
        EXPECT_EQ(failure.is_there(), group.rank() == 1);
        failure.share(group);
    });
    for (const std::string& end : ends) EXPECT_EQ(end, "Error: rank 1: the file is damaged");
}

TEST(RankFailure, LetsRanksGoOnWhereNothingFailed) {
    const std::vector<std::string> ends = test::run_ranks(2, [](comm::Group& group) {
        RankFailure failure;
        int done = 0;
        failure.keep([&] { ++done; });
        failure.add(nullptr);
        failure.share(group);
        EXPECT_EQ(done, 1);
    });
    for (const std::string& end : ends) EXPECT_EQ(end, "");
}

TEST(DeviceWork, StaysInterruptedWhereAnyPartOfItThrows) {
    DeviceWork work;
    work.run([&] {
        EXPECT_TRUE(work.is_interrupted());
        work.run([] {});
        EXPECT_TRUE(work.is_interrupted());
    });
    EXPECT_FALSE(work.is_interrupted());
    EXPECT_THROW(work.run([&] {
        work.run([] {});
        fail("a rank was lost");
    }),
                 Error);
    EXPECT_TRUE(work.is_interrupted());
}

} // namespace
} // namespace tutti

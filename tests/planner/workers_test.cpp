// Work on several threads: all of it, once, and the first failure in order.
#include "planner/evaluate/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tutti {

using namespace planner;
namespace {

TEST(Workers, DoEveryPieceOnce) {
    for (const int threads : {1, 2, 5})
        for (const std::size_t count : {0U, 1U, 3U, 1000U}) {
            std::vector<std::atomic<int>> done(count);
            in_parallel(count, threads, [&](std::size_t i) { ++done[i]; });
            for (const std::atomic<int>& one : done) EXPECT_EQ(one, 1);
        }
}

TEST(Workers, TellOfTheFirstFailureInOrder) {
    for (const int threads : {1, 4}) {
        std::atomic<int> done = 0;
        try {
            in_parallel(50, threads, [&](std::size_t i) {
                ++done;
                if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
            });
            FAIL();
        } catch (const std::runtime_error& error) {
            EXPECT_STREQ(error.what(), "7");
        }
        EXPECT_EQ(done, 50);
    }
}

} // namespace
} // namespace tutti

#include "train/pauses.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace train;
namespace {

TEST(Pauses, ComeAtTheNextMultipleOfEachPeriodAndAtTheEnd) {
    run::RunConfig config;
    config.steps = 20;
    config.save_every = 0;
    EXPECT_EQ(next_pause(config, 0, 0, {}), 20);
    config.eval_every = 6;
    config.save_every = 4;
    std::vector<std::int64_t> pauses;
    for (std::int64_t step = 0; step < config.steps; step = pauses.back())
        pauses.push_back(next_pause(config, step, 0, {}));
    EXPECT_EQ(pauses, (std::vector<std::int64_t>{4, 6, 8, 12, 16, 18, 20}));
    for (const std::int64_t pause : pauses) {
        EXPECT_EQ(evaluates_after(config, pause), pause % 6 == 0 || pause == 20) << pause;
        EXPECT_EQ(saves_after(config, pause), pause % 4 == 0) << pause;
    }
}

// Both count from where this process began, and are over once.
TEST(Pauses, ComeOnceForATraceAndForStopAfter) {
    run::RunConfig config;
    config.steps = 100;
    config.save_every = 0;
    EXPECT_EQ(next_pause(config, 10, 10, 15), 15);
    EXPECT_EQ(next_pause(config, 15, 10, 15), 100);
    config.stop_after = 3;
    EXPECT_EQ(next_pause(config, 10, 10, 15), 13);
    EXPECT_EQ(next_pause(config, 13, 10, 15), 15);
}

TEST(Pauses, AreNotForWhatNobodyAskedFor) {
    run::RunConfig config;
    config.steps = 8;
    config.save_every = config.eval_every = 0;
    for (std::int64_t step = 0; step <= config.steps; ++step) {
        EXPECT_FALSE(evaluates_after(config, step));
        EXPECT_FALSE(saves_after(config, step));
    }
}

} // namespace
} // namespace tutti

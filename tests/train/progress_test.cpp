#include "train/progress.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace train;
namespace {

// Steps 5 to 8, of which the last two are not finite: the model is still as it was after step 6.
TEST(Progress, OfAGoodStateEndsWithTheLastFiniteStep) {
    Progress progress;
    progress.begin({.step = 4, .samples = 40, .seed = 7, .skipped = 1});
    EXPECT_EQ(progress.good_state().step, 4);
    for (const bool finite : {true, true, false, false}) progress.advance(finite, 10);
    EXPECT_EQ(progress.step(), 8);
    EXPECT_EQ(progress.state().samples, 80);
    EXPECT_EQ(progress.skipped(), 3);
    const checkpoints::CheckpointState good = progress.good_state();
    EXPECT_EQ(good.step, 6);
    EXPECT_EQ(good.samples, 60);
    EXPECT_EQ(good.skipped, 1);
    EXPECT_EQ(good.seed, 7U);
}

// Those that were skipped before a finite step stay part of its state.
TEST(Progress, CountsSkippedStepsInLaterStates) {
    Progress progress;
    progress.begin({});
    for (const bool finite : {false, true}) progress.advance(finite, 4);
    EXPECT_EQ(progress.good_state().step, 2);
    EXPECT_EQ(progress.good_state().skipped, 1);
    EXPECT_EQ(progress.good_state().finite_steps(), 1);
}

TEST(Progress, KnowsTheFirstSampleOfStepsThatCome) {
    Progress progress;
    progress.begin({.step = 3, .samples = 100}); // another global batch before
    EXPECT_EQ(progress.first_sample_of(3, 8), 100);
    EXPECT_EQ(progress.first_sample_of(5, 8), 116);
    progress.advance(true, 8);
    EXPECT_EQ(progress.first_sample_of(5, 8), 116);
}

} // namespace
} // namespace tutti

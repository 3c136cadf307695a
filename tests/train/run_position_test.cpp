#include "train/run_position.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace train;
namespace {

// Steps 5 to 8, of which the last two are not finite: the model is still as it was after step 6.
TEST(RunPosition, OfAGoodStateEndsWithTheLastFiniteStep) {
    RunPosition position;
    position.begin({.step = 4, .samples = 40, .seed = 7, .skipped = 1});
    EXPECT_EQ(position.good_state().step, 4);
    for (const bool finite : {true, true, false, false}) position.advance(finite, 10);
    EXPECT_EQ(position.step(), 8);
    EXPECT_EQ(position.state().samples, 80);
    EXPECT_EQ(position.skipped(), 3);
    const checkpoints::CheckpointState good = position.good_state();
    EXPECT_EQ(good.step, 6);
    EXPECT_EQ(good.samples, 60);
    EXPECT_EQ(good.skipped, 1);
    EXPECT_EQ(good.seed, 7U);
}

// Those that were skipped before a finite step stay part of its state.
TEST(RunPosition, CountsSkippedStepsInLaterStates) {
    RunPosition position;
    position.begin({});
    for (const bool finite : {false, true}) position.advance(finite, 4);
    EXPECT_EQ(position.good_state().step, 2);
    EXPECT_EQ(position.good_state().skipped, 1);
    EXPECT_EQ(position.good_state().finite_steps(), 1);
}

TEST(RunPosition, KnowsTheFirstSampleOfStepsThatCome) {
    RunPosition position;
    position.begin({.step = 3, .samples = 100}); // another global batch before
    EXPECT_EQ(position.first_sample_of(3, 8), 100);
    EXPECT_EQ(position.first_sample_of(5, 8), 116);
    position.advance(true, 8);
    EXPECT_EQ(position.first_sample_of(5, 8), 116);
}

} // namespace
} // namespace tutti

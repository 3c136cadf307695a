#include "runtime/step_recording.h"

#include "runtime/late_queue.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

struct Recorded {
    test::LateQueue queue;
    StepRecording recording;
    int given = 0, done = 0; // by the host; by the device

    void step(bool repeats) {
        recording.run(queue, repeats, [this] {
            ++given;
            queue.give([this] { ++done; });
        });
        queue.synchronize();
    }
};

TEST(StepRecording, RecordsTheSecondStepAndReplaysItFromThenOn) {
    Recorded steps;
    steps.step(true);
    EXPECT_EQ(steps.queue.recorded, 0);
    for (int i = 0; i < 4; ++i) steps.step(true);
    EXPECT_EQ(steps.queue.recorded, 1);
    EXPECT_EQ(steps.queue.replayed, 4);
    EXPECT_EQ(steps.given, 2);
    EXPECT_EQ(steps.done, 5); // every step is done once
}

TEST(StepRecording, LetsStepsBetweenThatDoNotRepeatDoTheirOwnWork) {
    Recorded steps;
    for (const bool repeats : {true, true, false, true}) steps.step(repeats);
    EXPECT_EQ(steps.queue.recorded, 1);
    EXPECT_EQ(steps.queue.replayed, 2);
    EXPECT_EQ(steps.given, 3);
    EXPECT_EQ(steps.done, 4);
}

TEST(StepRecording, BeginsAnewWhenTheWorkHasChanged) {
    Recorded steps;
    for (int i = 0; i < 3; ++i) steps.step(true);
    steps.recording.forget();
    steps.step(true); // by the host again
    EXPECT_EQ(steps.queue.recorded, 1);
    EXPECT_EQ(steps.queue.replayed, 2);
    steps.step(true);
    EXPECT_EQ(steps.queue.recorded, 2);
    EXPECT_EQ(steps.done, 5);
}

} // namespace
} // namespace tutti

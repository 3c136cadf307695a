#include "runtime/step_timer.h"

#include "runtime/late_queue.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

TEST(StepTimer, LetsEachTaskEndOnTheDeviceBeforeTheNextBegins) {
    Program program;
    program.step = {{.kind = TaskKind::load}, {.kind = TaskKind::forward}, {.kind = TaskKind::backward}};
    test::LateQueue queue;
    DeviceWaits waits(queue, nullptr);
    StepTimer timer(program, waits);
    TraceRecorder recorder(program, 1);
    queue.give([] {}); // of the step before
    timer.begin(&recorder, 7);
    EXPECT_EQ(queue.pending(), 0);
    bool loaded = false;
    timer.run_on_host(program.step[0], [&] { loaded = true; });
    EXPECT_TRUE(loaded);
    for (const std::size_t task : {1U, 2U}) {
        bool awaited = false;
        timer.run(
            program.step[task], [&] { awaited = true; },
            [&] {
                EXPECT_TRUE(awaited);
                EXPECT_EQ(queue.pending(), 0);
                queue.give([] {});
            });
        EXPECT_EQ(queue.pending(), 0);
    }
    timer.end();
    const std::vector<RecordedStep> steps = recorder.take();
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_EQ(steps[0].step, 7);
    ASSERT_EQ(steps[0].tasks.size(), 3U);
    for (std::int32_t task = 0; task < 3; ++task) {
        const RecordedTask& recorded = steps[0].tasks[static_cast<std::size_t>(task)];
        EXPECT_EQ(recorded.task, task);
        EXPECT_LE(recorded.begin, recorded.end);
    }
}

TEST(StepTimer, HoldsNothingUpWithoutARecorder) {
    Program program;
    program.step = {{.kind = TaskKind::forward}};
    test::LateQueue queue;
    DeviceWaits waits(queue, nullptr);
    StepTimer timer(program, waits);
    timer.begin(nullptr, 0);
    timer.run(
        program.step[0], [] { FAIL() << "the work waits for what it needs itself"; }, [&] { queue.give([] {}); });
    timer.end();
    EXPECT_EQ(queue.done(), 0);
}

} // namespace
} // namespace tutti

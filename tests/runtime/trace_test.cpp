#include "runtime/trace.h"

#include "backend/reference/reference.h"
#include "comm/measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

namespace tutti {

using namespace backend::reference;
using namespace comm;
using namespace runtime;
namespace {

// Two micro-batches that each communicate twice, and once more after the last.
Program small_program() {
    Program program;
    Segment segment;
    for (const bool only_last : {false, false, true}) {
        Instruction communication = communication_of(InstructionKind::all_reduce, 0);
        communication.only_last = only_last;
        segment.instructions.push_back(communication);
    }
    program.segments = {segment};
    program.step = {{.kind = TaskKind::load}, {.segment = 0, .last = false}, {.micro_batch = 1, .segment = 0}};
    program.groups = {{"tensor", {0, 1}, 1}};
    return program;
}

OperationRecord operation_at(Seconds begin) {
    return {.group = "tensor", .operation = "all_reduce", .bytes = {8}, .begin = begin, .end = begin};
}

TEST(TraceRecorder, KeepsWhatBelongsToItsSteps) {
    const Program program = small_program();
    TraceRecorder recorder(program, 2);
    recorder.finished(operation_at(steady_now())); // before any step
    const Seconds before = steady_now();
    std::vector<Seconds> inside;
    for (const std::int64_t step : {7, 8}) {
        EXPECT_FALSE(recorder.is_full());
        recorder.begin_step(step);
        recorder.ran(0, steady_now(), steady_now());
        recorder.turn_to(1);
        recorder.wait(program.segments[0].instructions[0], steady_now(), steady_now());
        recorder.ran(1, steady_now(), steady_now());
        inside.push_back(steady_now());
        recorder.turn_to(-1);
        recorder.wait(program.segments[0].instructions[2], steady_now(), steady_now());
        recorder.end_step();
    }
    EXPECT_TRUE(recorder.is_full());
    // Operations end late, in any order, and on another thread.
    std::thread([&] {
        recorder.finished(operation_at(inside[1]));
        recorder.finished(operation_at(inside[0]));
        recorder.finished(operation_at(before));
        recorder.finished(operation_at(steady_now()));
    }).join();
    const std::vector<RecordedStep> steps = recorder.take();
    ASSERT_EQ(steps.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(steps[i].step, static_cast<std::int64_t>(7 + i));
        EXPECT_EQ(steps[i].tasks.size(), 2u);
        ASSERT_EQ(steps[i].waits.size(), 2u);
        EXPECT_EQ(steps[i].waits[0].task, 1);
        EXPECT_EQ(steps[i].waits[1].task, -1);
        ASSERT_EQ(steps[i].operations.size(), 1u);
        EXPECT_EQ(steps[i].operations[0].begin, inside[i]);
        EXPECT_LE(steps[i].begin, steps[i].end);
    }
    recorder.finished(operation_at(steady_now())); // nothing is kept any more
    EXPECT_TRUE(recorder.take().empty());
}

TEST(TraceRecorder, AllocatesNothingInAStep) {
    const Program program = small_program();
    TraceRecorder recorder(program, 1);
    recorder.begin_step(0);
    for (std::int32_t task = 0; task < 3; ++task) recorder.ran(task, {}, {});
    for (int i = 0; i < 5; ++i) {
        recorder.wait(program.segments[0].instructions[0], {}, {});
        recorder.finished(operation_at(steady_now()));
    }
    const std::vector<RecordedStep> steps = recorder.take();
    // Just what was reserved: two micro-batches with two communications each, and a last one.
    EXPECT_EQ(steps[0].tasks.capacity(), 3u);
    EXPECT_EQ(steps[0].waits.capacity(), 5u);
    EXPECT_EQ(steps[0].operations.capacity(), 5u);
}

} // namespace
} // namespace tutti

#include "runtime/deferred_updates.h"

#include "runtime/bound_memory.h"
#include "runtime/late_queue.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

Program program_with_update(bool of_last_step) {
    Program program;
    program.segments.emplace_back().instructions.push_back(
        {.op = "adamw", .kind = InstructionKind::update, .of_last_step = of_last_step});
    return program;
}

// The next step's scalars come while they are pending.
TEST(DeferredUpdates, KeepTheScalarsOfTheirOwnStep) {
    const Program program = program_with_update(true);
    const test::BoundMemory bound(program);
    test::LateQueue queue;
    DeferredUpdates deferred(program);
    EXPECT_FALSE(deferred.pending()); // before the first step
    *bound.memory.scalars() = {.step = 4, .clip_factor = 0.5};
    deferred.leave(bound.memory, queue);
    EXPECT_TRUE(deferred.pending());
    queue.synchronize();
    *bound.memory.scalars() = {.step = 5};
    EXPECT_EQ(bound.memory.deferred_scalars()->step, 4);
    EXPECT_EQ(bound.memory.deferred_scalars()->clip_factor, 0.5);
}

TEST(DeferredUpdates, AreNoneWhereAllRunInTheirOwnStep) {
    const Program program = program_with_update(false);
    const test::BoundMemory bound(program);
    test::LateQueue queue;
    DeferredUpdates deferred(program);
    deferred.leave(bound.memory, queue);
    EXPECT_FALSE(deferred.pending());
    EXPECT_EQ(queue.pending(), 0);
}

} // namespace
} // namespace tutti

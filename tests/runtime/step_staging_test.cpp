#include "runtime/step_staging.h"

#include "base/error.h"
#include "runtime/bound_memory.h"
#include "runtime/late_queue.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

// Two micro-batches of one number each.
Program program_with_batches() {
    Program program;
    program.micro_batches = 2;
    program.sizes[static_cast<std::size_t>(Region::batch)] = {8};
    program.inputs = {{"input_ids", {.address = {Region::batch, 0, 0}, .type = {DType::int64, {1}}, .strides = {1}}}};
    program.step = {{.kind = TaskKind::load}, {.kind = TaskKind::load, .micro_batch = 1}};
    return program;
}

struct Staged {
    Program program = program_with_batches();
    test::BoundMemory bound{program};
    test::LateQueue queue;
    DeviceWaits waits{queue, nullptr};
    StepTimer timer{program, waits};
    StepStaging staging{program, bound.memory};

    Staged() { staging.allocate(*bound.device); }

    // The step's work: its loss becomes the sum of the tokens, which are 100 and 101 times its number.
    void give(std::int64_t step) {
        const LoadBatch load = [&](std::int32_t micro_batch, std::span<std::byte* const> inputs) {
            *reinterpret_cast<std::int64_t*>(inputs[0]) = step * (100 + micro_batch);
        };
        staging.begin({.step = step}, load, queue, timer);
        queue.give([this] {
            const auto token = [&](std::int32_t micro_batch) {
                return *reinterpret_cast<const std::int64_t*>(
                    bound.memory.address({Region::batch, 0, 0}, {.micro_batch = micro_batch}));
            };
            bound.memory.scalars()->loss = static_cast<double>(token(0) + token(1));
        });
        staging.end(queue);
    }
};

// The device may be so late that it copies nothing of a step before the next one was given to it.
TEST(StepStaging, GivesEveryStepUnderWayItsOwnScalarsAndBatches) {
    Staged staged;
    staged.give(1);
    for (std::int64_t step = 1; step < 6; ++step) {
        staged.give(step + 1);
        EXPECT_EQ(staged.staging.under_way(), 2);
        const FinishedStep finished = staged.staging.finish(staged.waits);
        EXPECT_EQ(finished.scalars.step, step);
        EXPECT_EQ(finished.scalars.loss, static_cast<double>(201 * step));
        EXPECT_EQ(finished.at.count, 42); // as the queue notes it
    }
}

TEST(StepStaging, WaitsForTheOldestStepAlone) {
    Staged staged;
    staged.give(1);
    staged.give(2);
    staged.staging.finish(staged.waits);
    EXPECT_EQ(staged.queue.pending(), staged.queue.done()); // the same work again
}

TEST(StepStaging, RefusesMoreStepsThanItHasPlacesFor) {
    Staged staged;
    EXPECT_THROW(staged.staging.finish(staged.waits), Bug);
    staged.give(1);
    staged.give(2);
    EXPECT_THROW(staged.give(3), Bug);
}

} // namespace
} // namespace tutti

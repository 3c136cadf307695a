#include "runtime/program_memory.h"

#include "runtime/bound_memory.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

// Worked out by hand: everything begins at a multiple of 256 bytes, the scalars first, regions in the order of the
// enumeration, then the slots of the stages, then the workspace.
TEST(ProgramMemory, LaysOutScalarsBuffersAndWorkspace) {
    Program program;
    program.sizes[static_cast<std::size_t>(Region::constants)] = {100};
    program.sizes[static_cast<std::size_t>(Region::batch)] = {300};
    program.sizes[static_cast<std::size_t>(Region::results)] = {8};
    program.micro_batches = 2;
    LocalStage stage;
    stage.sizes[slotted(Region::stash)] = {300};
    stage.slots[slotted(Region::stash)] = 2;
    program.stages = {stage};
    const test::BoundMemory bound(program, {1000});
    const ProgramMemory& memory = bound.memory;

    const std::byte* const start = bound.scratch->data();
    const Task first{}, second{.micro_batch = 1, .slots = {0, 1, 0, 0, 0, 0}};
    auto at = [&](Region region, std::int64_t offset, const Task& task) {
        return memory.address({region, 0, offset}, task) - start;
    };
    EXPECT_EQ(at(Region::constants, 4, second), 256 + 4);
    EXPECT_EQ(memory.batches() - start, 512);
    EXPECT_EQ(at(Region::batch, 8, first), 512 + 8);
    EXPECT_EQ(at(Region::batch, 8, second), 512 + 512 + 8);
    EXPECT_EQ(at(Region::results, 0, second), 1536);
    EXPECT_EQ(at(Region::stash, 16, second) - at(Region::stash, 16, first), 512);
    EXPECT_EQ(memory.workspace() - start, memory.buffers().count);
    EXPECT_EQ(memory.buffers().count, 1536 + 256 + 2 * 512);
    EXPECT_EQ(memory.workspace_size().count, 1024);
}

TEST(ProgramMemory, KeepsTheScalarsOfTwoStepsBeforeItsFirstBuffer) {
    Program program;
    program.sizes[static_cast<std::size_t>(Region::constants)] = {8};
    const test::BoundMemory bound(program);
    const auto* first_buffer = bound.memory.address({Region::constants, 0, 0}, {});
    EXPECT_EQ(reinterpret_cast<std::byte*>(bound.memory.scalars()), bound.scratch->data());
    EXPECT_LE(reinterpret_cast<std::byte*>(bound.memory.deferred_scalars() + 1), first_buffer);
    EXPECT_GE(bound.memory.deferred_scalars(), bound.memory.scalars() + 1);
}

TEST(ProgramMemory, KnowsWhereItIsBound) {
    const test::BoundMemory bound{Program{}}, other{Program{}};
    EXPECT_TRUE(bound.memory.is_bound_to(bound.data, bound.scratch->data()));
    EXPECT_FALSE(bound.memory.is_bound_to(other.data, bound.scratch->data()));
    EXPECT_FALSE(bound.memory.is_bound_to(bound.data, other.scratch->data()));
}

} // namespace
} // namespace tutti

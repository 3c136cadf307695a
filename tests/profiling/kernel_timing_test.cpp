#include "profiling/kernel_timing.h"

#include "backend/reference/reference.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace backend::reference;
using namespace comm;
using namespace costs;
using namespace profiling;
namespace {

Argument operand(Region region, std::int64_t offset, DType dtype, const Shape& shape, Access access) {
    return {{region, 0, offset}, {dtype, shape}, dense_strides(shape), access};
}

Argument floats(Region region, std::int64_t offset, const Shape& shape, Access access = Access::read) {
    return operand(region, offset, DType::float32, shape, access);
}

Instruction matmul(Access access, bool first_overwrites) {
    Instruction one{.op = "linear"};
    one.inputs = {floats(Region::transient, 0, {3, 5}), floats(Region::weights, 0, {7, 5})};
    one.inputs[0].likely_cached = true;
    one.inputs[1].strides = {1, 7}; // stored transposed
    one.outputs = {floats(Region::gradients, 0, {3, 7}, access)};
    one.first_overwrites = first_overwrites;
    return one;
}

// Two micro-batches: rows of a table by numbers, a matmul of which the first overwrites and the second adds, a copy in
// place, a sum over ranks, and something that only the last does.
Program small_program() {
    Program program;
    Segment segment;
    Instruction rows{.op = "embedding"};
    rows.inputs = {operand(Region::batch, 0, DType::int32, {4}, Access::read), floats(Region::weights, 0, {2, 6})};
    rows.outputs = {floats(Region::transient, 0, {4, 6}, Access::write)};
    Instruction copy{.op = "contiguous"};
    copy.inputs = {floats(Region::transient, 256, {8})};
    copy.outputs = {floats(Region::transient, 256, {8}, Access::write)};
    Instruction last = copy;
    last.inputs[0].type.shape = last.outputs[0].type.shape = {9};
    last.only_last = true;
    Instruction sum = communication_of(InstructionKind::all_reduce, 0);
    segment.instructions = {rows, matmul(Access::accumulate, true), copy, sum, last};
    program.segments = {segment};
    program.step = {{.kind = TaskKind::load},
                    {.segment = 0, .first = true, .last = false},
                    {.micro_batch = 1, .segment = 0, .first = false, .last = true}};
    return program;
}

TEST(KernelKey, TellsApartWhatTakesAnotherTime) {
    const Instruction one = matmul(Access::write, false);
    const std::string key = kernel_key(one, false);
    EXPECT_EQ(key, "linear; float32[3,5]/5,1 near; float32[7,5]/1,7 ->; float32[3,7]/7,1");
    EXPECT_NE(kernel_key(one, true), key);
    Instruction other = one;
    other.source = "another layer";
    other.inputs[1].address = {Region::weights, 3, 512};
    EXPECT_EQ(kernel_key(other, false), key); // where it lies does not matter
    other.inputs[0].likely_cached = false;
    EXPECT_NE(kernel_key(other, false), key); // how far away does
    other = one;
    other.inputs[1].strides = {5, 1};
    EXPECT_NE(kernel_key(other, false), key);
    other = one;
    other.attributes.set("bias", true);
    EXPECT_NE(kernel_key(other, false), key);
}

TEST(KernelTimes, ComeBackFromText) {
    const KernelTimes times{{{kernel_key(matmul(Access::write, false), false), 1.0 / 3}, {"b", 1e-7}}};
    EXPECT_EQ(parse_kernel_times(to_text(times)), times);
    EXPECT_EQ(parse_kernel_times(""), KernelTimes{});
}

TEST(KernelTimes, ArePooledWithoutThePaceOfWhoTimedThem) {
    // The second rank is three times as slow, and the only one that has c.
    const std::vector<KernelTimes> ranks = {{{{"a", 1.0}, {"b", 3.0}}}, {{{"a", 3.0}, {"b", 9.0}, {"c", 12.0}}}};
    const PooledTimes together = pooled(ranks);
    ASSERT_EQ(together.slowdowns.size(), 2u);
    EXPECT_DOUBLE_EQ(together.slowdowns[0], 0.5);
    EXPECT_DOUBLE_EQ(together.slowdowns[1], 1.5);
    EXPECT_DOUBLE_EQ(together.times.seconds.at("a"), 2);
    EXPECT_DOUBLE_EQ(together.times.seconds.at("b"), 6);
    EXPECT_DOUBLE_EQ(together.times.seconds.at("c"), 8);
    EXPECT_TRUE(pooled({}).times.seconds.empty());
}

TEST(KernelTiming, TimesEveryFormOfEveryKernelOnce) {
    const Program program = small_program();
    const auto device = make_reference_device();
    const auto world = make_single_world();
    const KernelTimes times = time_kernels(program, *device, world->all(), {0.01});
    const auto& instructions = program.segments[0].instructions;
    EXPECT_EQ(times.seconds.size(), 5u);
    for (const auto& [key, seconds] : times.seconds) EXPECT_GT(seconds, 0) << key;
    EXPECT_TRUE(times.of(instructions[0], false));
    EXPECT_TRUE(times.of(instructions[1], false));
    EXPECT_TRUE(times.of(instructions[1], true));
    EXPECT_TRUE(times.of(instructions[4], false));
    EXPECT_FALSE(times.of(instructions[3], false)); // no kernel
    EXPECT_FALSE(times.of(instructions[0], true));
}

// A round may take minutes on a machine that others use.
TEST(KernelTiming, TellsOfEveryKernelBeforeItsTurn) {
    const Program program = small_program();
    std::vector<TimingRequest> requests;
    for (const Instruction& one : program.segments[0].instructions)
        if (one.lane != Lane::communication) requests.push_back({&one, false});
    const auto device = make_reference_device();
    const auto world = make_single_world();
    std::vector<std::size_t> told;
    std::size_t all = 0;
    time_kernels(requests, *device, world->all(), {1 << 10}, {0.001}, {1 << 20},
                 [&](std::size_t timed, std::size_t of) {
                     told.push_back(timed);
                     all = of;
                 });
    EXPECT_EQ(all, 4u);
    ASSERT_GE(told.size(), 4 * all); // the first time, and three rounds
    for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i % all);
}

TEST(KernelTiming, LeavesOutWhatTakesTooMuchMemory) {
    Program program = small_program();
    Instruction large{.op = "contiguous"};
    large.inputs = {floats(Region::weights, 0, {1 << 10})};
    large.outputs = {floats(Region::gradients, 0, {1 << 10}, Access::write)};
    program.segments[0].instructions.push_back(large);
    const auto device = make_reference_device();
    const auto world = make_single_world();
    const KernelTimes times = time_kernels(program, *device, world->all(), {0.01}, {4096});
    EXPECT_EQ(times.seconds.size(), 5u);
    EXPECT_FALSE(times.of(large, false));
    EXPECT_TRUE(time_kernels(program, *device, world->all(), {0.01}, {8192}).of(large, false));
}

} // namespace
} // namespace tutti

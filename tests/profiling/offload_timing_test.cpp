#include "profiling/offload_timing.h"

#include "backend/cpu/cpu.h"
#include "support/thread_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace tutti {

using namespace backend::cpu;
using namespace comm::threads;
using namespace offload;
using namespace profiling;
namespace {

Argument floats(Region region, const Shape& shape, Access access = Access::read) {
    return {{region, 0, 0}, {DType::float32, shape}, dense_strides(shape), access};
}

// A product that adds to gradients but for the first time, its update by the host, and a sum over ranks.
Program timed_program() {
    Instruction matmul{.op = "linear"};
    matmul.inputs = {floats(Region::transient, {32, 64}), floats(Region::weights, {16, 64})};
    matmul.outputs = {floats(Region::gradients, {32, 16}, Access::accumulate)};
    matmul.first_overwrites = true;
    Instruction update{.op = "adamw", .kind = InstructionKind::update, .lane = Lane::host};
    update.inputs = {floats(Region::gradients, {512})};
    update.outputs = {floats(Region::weights, {512}, Access::accumulate)};
    Instruction sum = communication_of(InstructionKind::all_reduce, 0);
    sum.outputs = {floats(Region::gradients, {512}, Access::accumulate)};
    Program program;
    program.segments.push_back({.instructions = {matmul, update, sum}});
    program.step = {{.segment = 0, .first = true, .last = false},
                    {.micro_batch = 1, .segment = 0, .first = false, .last = true}};
    return program;
}

TEST(OffloadTiming, TellsAllRanksTheSame) {
    const Program program = timed_program();
    const auto worlds = make_thread_worlds(2, Seconds{60});
    std::array<std::vector<double>, 2> told;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank)
        threads.emplace_back([&, rank] {
            const auto device = make_cpu_device(1);
            OffloadTiming timing(*device, *device, *worlds[rank], DType::float32, {1 << 20});
            const OffloadSpeed speed = timing.of(program, {}, {1 << 20});
            told[rank] = {speed.host.in, speed.host.out, speed.host.together,
                          speed.updates, timing.flops(), timing.copied_bytes()};
            for (const Task& task : program.step)
                for (const Instruction& one : program.segments[0].instructions)
                    told[rank].push_back(speed.seconds(one, task));
        });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(told[0].size(), 12u);
    EXPECT_EQ(told[0], told[1]);
    for (const double one : told[0]) EXPECT_TRUE(std::isfinite(one) && one > 0) << one;
}

} // namespace
} // namespace tutti

// The memory table of every rank is what it allocates, to the byte, and what its Program says.
#include "run_ranks.h"

#include "memory/memory_map.h"
#include "train/session/session.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace tutti::test {

using namespace comm::threads;
using namespace memory;
using namespace run;
using namespace sharding;
using namespace train;
namespace {

// What the regions of a Program add up to, but for the scalars and for gaps between regions.
Bytes stated(const Program& program) {
    Bytes total;
    for (std::size_t region = 0; region < region_count; ++region) {
        const auto one = static_cast<Region>(region);
        total += program.sizes[region];
        if (has_slots(one)) total += slot_bytes(program, one);
        if (is_chunk(one) && has_chunks(program, one)) total += chunk_bytes(program, one);
    }
    const Bytes batch = program.sizes[static_cast<std::size_t>(Region::batch)];
    return total + (program.micro_batches - 1) * batch; // the batches of all micro-batches are there at once
}

// Beside chunks: the end of the last byte that an instruction of the step reads or writes, where regions lie one behind
// the other from 0 on.
Bytes touched(const Program& program) {
    const MemoryMap map(program);
    std::int64_t end = 0;
    for (const Task& task : program.step) {
        if (task.segment < 0) continue;
        for (const Instruction& one : program.segments[static_cast<std::size_t>(task.segment)].instructions)
            for (const auto* arguments : {&one.inputs, &one.outputs})
                for (const Argument& argument : *arguments) {
                    if (is_chunk(argument.address.region)) continue;
                    std::int64_t last = 0; // element
                    for (int i = 0; i < argument.type.shape.rank(); ++i)
                        last += (argument.type.shape[i] - 1) * argument.strides[i];
                    const std::int64_t bytes = (last + 1) * size_of(argument.type.dtype);
                    end = std::max(end, map.offset(argument.address, task) + bytes);
                }
    }
    return {end};
}

void expect_table_is_arena(const RunConfig& config) {
    const auto worlds = make_thread_worlds(config.mesh->ranks(), Seconds{60});
    std::vector<std::thread> threads;
    for (const auto& world : worlds)
        threads.emplace_back([&] {
            TrainListener listener;
            const Session session(config, listener, *world);
            const MemoryTable& table = session.memory();
            const Program& program = session.compiled().program;
            SCOPED_TRACE(
                fmt::format("{}, zero {}, rank {}", to_string(*config.mesh), config.zero.stage(), world->rank()));
            // The table's buffers are what its other rows leave of the arena: they would hide a row that is wrong, or
            // grow negative.
            const Bytes batches = program.micro_batches * program.sizes[static_cast<std::size_t>(Region::batch)];
            EXPECT_GE(table.buffers, batches);
            EXPECT_LE((table.buffers - batches).count, 64 << 10);
            const Bytes rest = session.device_memory() - table.workspace - stated(program);
            EXPECT_GE(rest.count, 0);
            EXPECT_LE(rest.count, 64 << 10);
            const Bytes beside_chunks = session.device_memory() - table.model_data() - table.workspace;
            EXPECT_GT(touched(program).count, 0);
            EXPECT_LE(touched(program), beside_chunks);
            EXPECT_LE((beside_chunks - touched(program)).count, 64 << 10);
        });
    for (std::thread& thread : threads) thread.join();
}

TEST(Memory, IsAllocatedAsTheTableAndTheProgramState) {
    RunConfig config = small_run("gpt2");
    for (const Mesh& mesh : {Mesh{.pipe = 2, .tensor = 2}, Mesh{.data = 3}, Mesh{.pipe = 3}})
        for (int zero : {0, 3}) {
            config.mesh = mesh;
            config.zero = zero;
            config.workload.global_batch = 6;
            expect_table_is_arena(config);
        }
}

TEST(Memory, OfAllRanksIsKnownToAll) {
    RunConfig config = small_run("gpt2");
    config.mesh = Mesh{.pipe = 2};
    config.steps = 1;
    const RanksResult result = train_on_ranks(config);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        const RunSummary& summary = result.listeners[rank].summary;
        ASSERT_EQ(summary.rank_memory.size(), 2u);
        EXPECT_EQ(summary.rank_memory[rank], summary.memory.total());
        EXPECT_EQ(summary.rank_memory, result.listeners[0].summary.rank_memory);
        EXPECT_EQ(summary.flops_per_step, result.listeners[0].summary.flops_per_step);
        EXPECT_EQ(result.results[rank].rank_peaks.size(), 2u);
    }
    // As much work as on one rank, if nothing is computed twice.
    config.mesh = Mesh{};
    const double alone = train_on_ranks(config).listeners[0].summary.flops_per_step;
    EXPECT_NEAR(result.listeners[0].summary.flops_per_step, alone, 0.01 * alone);
}

} // namespace
} // namespace tutti::test

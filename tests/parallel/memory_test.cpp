// The memory table of every rank is what it allocates, to the byte, and what its Program says.
#include "run_ranks.h"

#include "train/session.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace tutti::test {
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

void expect_table_is_arena(const RunConfig& config) {
    const auto worlds = make_thread_worlds(config.mesh->ranks(), Seconds{60});
    std::vector<std::thread> threads;
    for (const auto& world : worlds)
        threads.emplace_back([&] {
            TrainListener listener;
            const Session session(config, listener, *world);
            const MemoryTable& table = session.memory();
            EXPECT_EQ(table.arena(), session.device_memory()) << "rank " << world->rank();
            const Bytes rest = table.arena() - table.workspace - stated(session.compiled().program);
            EXPECT_GE(rest.count, 0) << "rank " << world->rank();
            EXPECT_LE(rest.count, 64 << 10) << "rank " << world->rank();
        });
    for (std::thread& thread : threads) thread.join();
}

TEST(Memory, IsAllocatedAsTheTableAndTheProgramState) {
    RunConfig config = small_run("gpt2");
    for (const Mesh& mesh : {Mesh{.pipe = 2, .tensor = 2}, Mesh{.data = 3}, Mesh{.pipe = 3}})
        for (int zero : {0, 3}) {
            config.mesh = mesh;
            config.zero = zero;
            config.global_batch = 6;
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

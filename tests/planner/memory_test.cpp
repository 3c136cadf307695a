// What the planner says of memory, against the programs of all ranks of the plan.
#include "compile/compile.h"
#include "memory/memory_map.h"
#include "schedule/families.h"
#include "setting.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace compile;
using namespace memory;
using namespace models;
using namespace planner;
using namespace schedule;
namespace {

// Within 3% of the compiled program's own table.
void expect_memory(Setting& setting, const PlanDecisions& decisions, const PlanCost& cost, std::span<const int> pipes,
                   double more = 0.03) {
    Plan plan = plan_of(setting.model, decisions);
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
    plan.fusion = FusionOptions{.head_logits = setting.workload.head_logits};
    const std::int64_t built = plan.sub_pipeline ? plan.workload.micro_batch / 2 : plan.workload.micro_batch;
    const Model model = setting.source.build({built, 128, DType::bfloat16});
    for (const int pipe : pipes) {
        const Program program = compile::compile(model.graph, plan, plan.mesh.rank_of({.pipe = pipe})).program;
        double chunks = 0, slots = 0;
        for (std::size_t r = 0; r < region_count; ++r) {
            const auto region = static_cast<Region>(r);
            if (is_chunk(region) && has_chunks(program, region))
                chunks += static_cast<double>(chunk_bytes(program, region).count);
            if (has_slots(region)) slots += static_cast<double>(slot_bytes(program, region).count);
        }
        const auto transient = static_cast<double>(program.sizes[static_cast<std::size_t>(Region::transient)].count);
        const double real = chunks + static_cast<double>(MemoryMap(program).size().count);
        const RankBytes& said = cost.ranks[static_cast<std::size_t>(pipe)];
        EXPECT_GE(said.total(), 0.97 * real) << describe(decisions) << ", pipeline rank " << pipe;
        EXPECT_LE(said.total(), (1 + more) * real)
            << describe(decisions) << ", pipeline rank " << pipe << ": chunks " << chunks << ", said "
            << said.weights + said.gradients + said.master + said.moments << "; slots " << slots << " and transient "
            << transient << ", said " << said.activations << "; buffers " << said.buffers;
    }
}

TEST(PlannedMemory, IsWhatIsCompiledForEveryFamily) {
    const std::vector<ScheduleParameters> schedules = {
        {.family = "gpipe"},
        {.family = "1f1b"},
        {.family = "interleaved"},
        {.family = "chimera"},
        {.family = "mixpipe"},
        {.family = "hanayo"},
        {.family = "hanayo", .stages_per_rank = 4},
        {.family = "zb-1p"},
        {.family = "zb-2p"},
        {.family = "zb-v"},
        {.family = "v-half"},
        {.family = "v-min"},
        {.family = "dualpipe"},
        {.family = "dualpipe-v"},
        {.family = "early-recompute"},
        {.family = "last-stage-without-recompute"},
        {.family = "shifted-critical-path"},
        {.family = "greedy"},
        {.family = "greedy", .stages_per_rank = 2, .placement = StagePlacement::wave, .split_backward = true},
    };
    for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
        Setting setting(small_cluster(4, 4, 1), small_model(name, 9), 32);
        const int blocks = setting.chain.blocks();
        int number = name == std::string("gpt2-tiny") ? 0 : 1;
        for (const ScheduleParameters& family : schedules)
            for (const int zero : {0, 1, 2, 3})
                for (const int recomputed : {0, 1, 3}) { // none, all, every third block
                    // Each on two of the ranks, with one of the models, with and without a tensor group in turn.
                    if (++number % 2 == 0) continue;
                    PlanDecisions decisions{.tensor_parallel = {.ranks = number % 4 == 1 ? 1 : 2},
                                            .pipe = 4,
                                            .data = 2,
                                            .micro_batch = 2,
                                            .zero = zero,
                                            .schedule = family};
                    decisions.schedule.ranks = 4;
                    decisions.schedule.micro_batches = 8;
                    decisions.schedule = resolve(decisions.schedule);
                    const int stages = decisions.schedule.stages();
                    for (int stage = 1; stage < stages; ++stage) decisions.cuts.push_back(stage * blocks / stages);
                    decisions.recompute.resize(static_cast<std::size_t>(stages));
                    for (int stage = 0; stage < stages && recomputed > 0; ++stage)
                        for (int b = decisions.first_block(stage); b < decisions.end_block(stage, blocks); ++b)
                            if (b % recomputed == 0) decisions.recompute[static_cast<std::size_t>(stage)].push_back(b);
                    decisions.layout = usual_layout(setting.cluster, decisions.mesh());
                    const std::optional<PlanCost> cost = setting.model.evaluate(decisions);
                    ASSERT_TRUE(cost) << describe(decisions);
                    // Where weight gradients come by themselves, what comes and goes grows with every block that is
                    // recomputed, and all count as if they were.
                    const bool rough =
                        recomputed == 3 && decisions.tensor_parallel.ranks > 1 && decisions.schedule.split_backward;
                    expect_memory(setting, decisions, *cost, std::array{0, 1 + number / 2 % 3}, rough ? 0.035 : 0.03);
                }
    }
}

// Some, two, three and many of them to a stage.
TEST(PlannedMemory, CountsSpreadChunksAsTheyAreLaidOut) {
    for (const std::int64_t elements : {40'000, 60'000, 120'000, 200'000, 300'000, 450'000, 1 << 22}) {
        Setting setting(small_cluster(4, 4, 1), small_model("gpt2-tiny", 9), 32);
        setting.workload.chunk_elements = elements;
        for (const int zero : {2, 3})
            for (const int pipe : {1, 2}) {
                SCOPED_TRACE(elements);
                PlanDecisions decisions{.tensor_parallel = {}, .pipe = pipe, .data = 4, .micro_batch = 1, .zero = zero};
                decisions.schedule = resolve({.family = "1f1b", .ranks = pipe, .micro_batches = 8});
                if (pipe > 1) decisions.cuts = {setting.chain.blocks() / 2};
                decisions.recompute.resize(static_cast<std::size_t>(pipe));
                decisions.layout = usual_layout(setting.cluster, decisions.mesh());
                const std::optional<PlanCost> cost = setting.model.evaluate(decisions);
                ASSERT_TRUE(cost);
                expect_memory(setting, decisions, *cost, std::array{0, pipe - 1});
            }
    }
}

// With one micro-batch to a step, and whole chunks; those of the head lie by themselves.
TEST(PlannedMemory, CountsGradientsThatLieOverWeights) {
    struct Case {
        int zero, pipe, data, tensor;
    };
    for (const char* name : {"gpt2-tiny", "llama-tiny", "bert-tiny"})
        for (const Case& one : {Case{0, 1, 1, 1}, Case{0, 1, 1, 2}, Case{0, 2, 1, 1}, Case{0, 1, 2, 1},
                                Case{0, 2, 2, 2}, Case{1, 1, 2, 1}, Case{2, 1, 2, 1}, Case{3, 1, 2, 2}}) {
            SCOPED_TRACE(fmt::format("{}, ZeRO {}", name, one.zero));
            Setting setting(small_cluster(4, 4, 1), small_model(name, 9), 2 * one.data);
            setting.workload.precision.gradients = DType::bfloat16;
            PlanDecisions decisions{.tensor_parallel = {.ranks = one.tensor},
                                    .pipe = one.pipe,
                                    .data = one.data,
                                    .micro_batch = 2,
                                    .zero = one.zero};
            decisions.schedule = resolve({.family = "1f1b", .ranks = one.pipe, .micro_batches = 1});
            if (one.pipe > 1) decisions.cuts = {setting.chain.blocks() / 2};
            decisions.recompute.resize(static_cast<std::size_t>(one.pipe));
            decisions.layout = usual_layout(setting.cluster, decisions.mesh());
            const std::optional<PlanCost> cost = setting.model.evaluate(decisions);
            ASSERT_TRUE(cost);
            expect_memory(setting, decisions, *cost, std::array{0, one.pipe - 1});
            const RankBytes& first = cost->ranks.front();
            if (one.zero < 2) {
                EXPECT_LT(first.gradients, first.weights / 2);
            }
        }
}

TEST(PlannedMemory, IsWhatIsCompiledForWhatIsFound) {
    for (const double gigabytes : {1.0, 0.016, 0.012}) {
        SCOPED_TRACE(gigabytes);
        Setting setting(small_cluster(2, 4, gigabytes), 4, 16);
        const SearchResult found = search(setting.model, {});
        ASSERT_FALSE(found.best.empty());
        for (const RankedPlan& ranked : found.best) {
            std::vector<int> pipes;
            for (int pipe = 0; pipe < ranked.decisions.pipe; ++pipe) pipes.push_back(pipe);
            expect_memory(setting, ranked.decisions, ranked.cost, pipes);
        }
    }
}

} // namespace
} // namespace tutti

// Plans by flags: cuts, schedule, recomputation and offloaded activations, against what the blocks' own graphs say.
#include "resolve/pipeline_plan.h"

#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "models/model.h"
#include "planner/stages/cuts.h"
#include "planner/stages/recompute_choice.h"
#include "schedule/evaluate.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tutti::test {

using namespace resolve;
using namespace run;
namespace {

constexpr Bytes plenty{std::int64_t{1} << 40};

Graph model_graph(int layers = 4) {
    nlohmann::json config = models::open_model("gpt2-tiny").config();
    config["n_layer"] = layers;
    return models::ModelSource(config, "a small model").build({2, 64, DType::float32}).graph;
}

Plan plan_of_ranks(int pipe, std::int64_t micro_batches = 8) {
    Plan plan;
    plan.workload = {.sequence = 64, .global_batch = 2 * micro_batches, .micro_batch = 2};
    plan.mesh = {.pipe = pipe};
    return plan;
}

schedule::ScheduleParameters asked_of(const Plan& plan, const char* family = "1f1b") {
    return {.family = family, .ranks = plan.mesh.pipe, .micro_batches = static_cast<int>(plan.micro_batches())};
}

std::vector<std::size_t> counts(const std::vector<std::vector<int>>& blocks) {
    std::vector<std::size_t> sizes;
    for (const std::vector<int>& stage : blocks) sizes.push_back(stage.size());
    return sizes;
}

TEST(PipelinePlan, OfOneStageHasNoCutsAndNoSchedule) {
    Plan plan = plan_of_ranks(1);
    plan_pipeline(plan, model_graph(), std::nullopt, {}, plenty);
    EXPECT_TRUE(plan.cuts.empty());
    EXPECT_FALSE(plan.schedule);
    EXPECT_TRUE(plan.recompute.empty());
    EXPECT_TRUE(plan.offload.empty());
}

TEST(PipelinePlan, CutsSoThatTheSlowestStageIsAsFastAsCanBe) {
    const Graph graph = model_graph();
    const std::vector<Block> blocks = find_blocks(graph);
    for (const int pipe : {2, 3, 4}) {
        Plan plan = plan_of_ranks(pipe);
        plan_pipeline(plan, graph, asked_of(plan), {}, plenty);
        ASSERT_EQ(plan.stages(), pipe);
        auto slowest = [&](std::vector<int> ends) {
            ends.push_back(static_cast<int>(blocks.size()));
            double most = 0;
            int block = 0;
            for (const int end : ends) {
                double seconds = 0;
                for (; block < end; ++block)
                    seconds += planner::time_of(blocks[static_cast<std::size_t>(block)], {}).count;
                most = std::max(most, seconds);
            }
            return most;
        };
        double least = slowest(plan.cuts) * 2;
        for (const planner::Cuts& cuts : planner::all_cuts(static_cast<int>(blocks.size()), pipe, 1000))
            least = std::min(least, slowest(cuts));
        EXPECT_NEAR(slowest(plan.cuts), least, 1e-9 * least);
    }
}

TEST(PipelinePlan, TooManyStagesAreAnErrorThatSaysHowManyRanksThereMayBe) {
    const Graph graph = model_graph(1);
    const auto blocks = static_cast<int>(find_blocks(graph).size());
    Plan plan = plan_of_ranks(blocks + 1, 16);
    EXPECT_ERROR(plan_pipeline(plan, graph, asked_of(plan), {}, plenty), "too few for");
    EXPECT_ERROR(plan_pipeline(plan, graph, asked_of(plan), {}, plenty), fmt::format("at most {} ranks", blocks));
}

TEST(PipelinePlan, RecomputesNothingWhereMemoryIsPlentyAndEverythingWhereItIsAsked) {
    const Graph graph = model_graph();
    Plan enough = plan_of_ranks(2), full = plan_of_ranks(2);
    plan_pipeline(enough, graph, asked_of(enough), {.automatic = true}, plenty);
    EXPECT_EQ(counts(enough.recompute), (std::vector<std::size_t>{0, 0}));
    plan_pipeline(full, graph, asked_of(full), {.share = 1}, plenty);
    const std::size_t blocks = find_blocks(graph).size();
    const std::size_t recomputed = full.recompute.at(0).size() + full.recompute.at(1).size();
    EXPECT_GT(recomputed, blocks - 3); // the embedding and the head may save nothing
    EXPECT_LE(recomputed, blocks);
    EXPECT_EQ(enough.cuts, full.cuts);
    // The schedule is told that a stage's forward is done again.
    EXPECT_EQ(enough.schedule->costs.stages[0].recompute, 0);
    EXPECT_GT(full.schedule->costs.stages[0].recompute, 0);
    EXPECT_LE(full.schedule->costs.stages[0].recompute, full.schedule->costs.stages[0].forward);
}

// A micro-batch that waits keeps what its blocks keep, recomputed or not: a simulation of the plan holds as much.
TEST(PipelinePlan, TellsItsScheduleWhatAStageKeepsThatRecomputesSomeOfItsBlocks) {
    const Graph graph = model_graph();
    const std::vector<Block> blocks = find_blocks(graph);
    for (const double share : {0.3, 0.5, 1.0}) {
        Plan plan = plan_of_ranks(2);
        plan_pipeline(plan, graph, asked_of(plan), {.share = share}, plenty);
        const schedule::Costs& costs = plan.schedule->costs;
        const schedule::Evaluation held = schedule::evaluate(plan.schedule->schedule, costs);
        for (std::size_t s = 0; s < 2; ++s) {
            const Graph step = compile::finished(
                compile::differentiated(compile::stage_graph(graph, blocks, plan.cuts, static_cast<int>(s)), true), {});
            Bytes waiting, largest;
            for (const compile::BlockActivations& block : compile::measure_activations(step)) {
                const bool again = std::ranges::find(plan.recompute[s], block.block) != plan.recompute[s].end();
                waiting += again ? block.boundary : block.kept;
                if (again) largest = std::max(largest, block.kept - block.boundary);
            }
            const int in_flight = s == 0 ? 2 : 1;
            EXPECT_FALSE(plan.recompute[s].empty());
            EXPECT_EQ(costs.stages[s].boundary, static_cast<double>(waiting.count)) << share;
            EXPECT_EQ(held.ranks[s].peak_activations, static_cast<double>((in_flight * waiting + largest).count))
                << share;
        }
    }
}

// The least work that fits is no more with more memory.
TEST(PipelinePlan, RecomputesNoMoreWorkWithMoreMemory) {
    const Graph graph = model_graph();
    double before = 1e30;
    std::set<double> seen;
    for (std::int64_t kilobytes = 6000; kilobytes <= 20'000; kilobytes += 500) {
        Plan plan = plan_of_ranks(2);
        plan_pipeline(plan, graph, asked_of(plan), {.automatic = true}, Bytes{kilobytes * 1000});
        const double again = plan.schedule->costs.stages[0].recompute;
        EXPECT_LE(again, before) << kilobytes;
        before = again;
        seen.insert(again);
    }
    EXPECT_EQ(before, 0); // everything fits
    EXPECT_GT(seen.size(), 2U);
}

// What the step graph of the first stage keeps, counted here.
TEST(PipelinePlan, RecomputesWhatMakesTheFirstStageFit) {
    const Graph graph = model_graph();
    const std::vector<Block> blocks = find_blocks(graph);
    Plan plain = plan_of_ranks(2);
    plan_pipeline(plain, graph, asked_of(plain), {}, plenty);
    const Graph step =
        compile::finished(compile::differentiated(compile::stage_graph(graph, blocks, plain.cuts, 0), true), {});
    planner::StageActivations stage{
        .budget = {}, .fixed = {}, .in_flight = 2, .blocks = compile::measure_activations(step)};
    std::int64_t elements = 0;
    for (int b = 0; b < plain.cuts[0]; ++b) elements += blocks[static_cast<std::size_t>(b)].parameters;
    stage.fixed = {16 * elements}; // weights, gradients and two moments, all of four bytes
    const Bytes most = planner::peak_of(stage, {}, schedule::Recompute::on_gradient);
    std::vector<int> all(static_cast<std::size_t>(plain.cuts[0]));
    for (std::size_t b = 0; b < all.size(); ++b) all[b] = static_cast<int>(b);
    const Bytes least = planner::peak_of(stage, all, schedule::Recompute::on_gradient);
    ASSERT_LT(least, most);
    for (const double share : {0.3, 0.6, 0.95}) {
        const Bytes memory{least.count + static_cast<std::int64_t>(share * static_cast<double>((most - least).count))};
        Plan plan = plan_of_ranks(2);
        plan_pipeline(plan, graph, asked_of(plan), {.automatic = true}, memory);
        EXPECT_FALSE(plan.recompute.at(0).empty());
        EXPECT_LE(planner::peak_of(stage, plan.recompute.at(0), schedule::Recompute::on_gradient), memory) << share;
    }
}

TEST(PipelinePlan, OffloadsActivationsInPlaceOfRecomputingWhereCopiesAreFaster) {
    const Graph graph = model_graph();
    const OffloadChoice fast{.kind = ActivationOffload::automatic, .copies = 1e15, .flops = 1},
        slow{.kind = ActivationOffload::automatic, .copies = 1, .flops = 1e15};
    Plan recomputing = plan_of_ranks(2), offloading = recomputing, unchanged = recomputing;
    plan_pipeline(recomputing, graph, asked_of(recomputing), {.share = 1}, plenty);
    plan_pipeline(offloading, graph, asked_of(offloading), {.share = 1}, plenty, fast);
    EXPECT_EQ(offloading.offload, recomputing.recompute);
    EXPECT_EQ(counts(offloading.recompute), (std::vector<std::size_t>{0, 0}));
    plan_pipeline(unchanged, graph, asked_of(unchanged), {.share = 1}, plenty, slow);
    EXPECT_EQ(unchanged.recompute, recomputing.recompute);
    EXPECT_EQ(counts(unchanged.offload), (std::vector<std::size_t>{0, 0}));
}

// The embedding may keep nothing that could be offloaded; every block of a layer does.
TEST(PipelinePlan, OffloadsTheBlocksOfEveryLayerWhereThatIsAsked) {
    const Graph graph = model_graph();
    Plan plan = plan_of_ranks(1);
    plan_pipeline(plan, graph, std::nullopt, {}, plenty, {.kind = ActivationOffload::full});
    ASSERT_EQ(plan.offload.size(), 1U);
    const int blocks = static_cast<int>(find_blocks(graph).size());
    ASSERT_GT(blocks, 2);
    for (int block = 1; block < blocks - 1; ++block) EXPECT_EQ(std::ranges::count(plan.offload[0], block), 1) << block;
    EXPECT_TRUE(plan.recompute.empty());
}

} // namespace
} // namespace tutti::test

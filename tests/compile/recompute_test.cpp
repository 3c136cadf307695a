// Recomputation changes what is kept, and not a bit of what is computed; how much is recomputed follows from memory.
#include "compile/graphs/recompute.h"

#include "base/error.h"
#include "compile/graphs/recompute_choice.h"
#include "compile/step_run.h"
#include "graph/verify.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tutti::test {

using namespace compile;
using namespace models;
using namespace schedule;
namespace {

Graph step_of(const Model& model, const FusionOptions& fusion) {
    const std::vector<Block> blocks = find_blocks(model.graph);
    return finished(differentiated(stage_graph(model.graph, blocks, {}, 0), fusion.merge_linears), fusion);
}

std::vector<int> blocks_of(const Graph& step, int modulus, int rest) {
    std::set<int> blocks;
    for (const Node& node : step.nodes())
        if (node.block >= 0 && node.block % modulus == rest) blocks.insert(node.block);
    return {blocks.begin(), blocks.end()};
}

StepResult run_step(Graph step, const Tensors& tokens) {
    std::vector<Graph> only;
    only.push_back(std::move(step));
    return run_stages(std::move(only), tokens);
}

// What the forward leaves behind that later passes read: tensors that no pass before the first step can make.
std::vector<TensorType> kept(const Graph& step) {
    std::set<ValueId> storages;
    for (const Node& node : step.nodes())
        if (node.phase != Phase::forward && !node.op->view)
            for (ValueId input : node.inputs) storages.insert(step.value(input).storage);
    std::vector<TensorType> types;
    for (ValueId storage : storages) {
        const NodeId producer = step.value(storage).producer;
        if (producer != NodeId::none && step.node(producer).phase == Phase::forward &&
            !step.node(producer).inputs.empty())
            types.push_back(step.type(storage));
    }
    return types;
}

std::int64_t bytes_of(const std::vector<TensorType>& types) {
    std::int64_t bytes = 0;
    for (const TensorType& type : types) bytes += type.bytes().count;
    return bytes;
}

std::map<std::string, int> operators_of(const Graph& step, Phase phase) {
    std::map<std::string, int> count;
    for (const Node& node : step.nodes())
        if (node.phase == phase) ++count[std::string(node.op->name)];
    return count;
}

class RecomputeFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(RecomputeFamilies, OfNoneSomeOrAllBlocksTheBitsAreTheSame) {
    const Model model = random_model(GetParam());
    const Tensors tokens = some_tokens(model);
    const Graph fused = step_of(model, {}), plain = step_of(model, no_fusion);
    auto expect_same = [&](const Graph& step, const StepResult& expected, Recompute when, int modulus, int rest) {
        SCOPED_TRACE(fmt::format("{} {} of {}", name_of(when), rest, modulus));
        const Graph again = recompute(step, blocks_of(step, modulus, rest), when);
        verify(again);
        EXPECT_LT(bytes_of(kept(again)), bytes_of(kept(step)));
        EXPECT_EQ(difference(expected, run_step(again, tokens)), 0);
    };
    const StepResult expected = run_step(fused, tokens);
    expect_same(fused, expected, Recompute::early, 1, 0);
    expect_same(fused, expected, Recompute::early, 2, 1);
    expect_same(fused, expected, Recompute::on_gradient, 1, 0);
    expect_same(fused, expected, Recompute::on_gradient, 3, 1);
    expect_same(plain, run_step(plain, tokens), Recompute::early, 2, 0);
}

TEST_P(RecomputeFamilies, WhatIsMeasuredIsWhatIsSaved) {
    const Model model = random_model(GetParam());
    for (const FusionOptions& fusion : {FusionOptions{}, no_fusion}) {
        const Graph step = step_of(model, fusion);
        const std::int64_t before = bytes_of(kept(step));
        Bytes all;
        for (const BlockActivations& block : measure_activations(step)) {
            const Graph again = recompute(step, std::vector{block.block}, Recompute::early);
            EXPECT_EQ(before - bytes_of(kept(again)), (block.kept - block.boundary).count) << block.block;
            double flops = 0;
            for (std::size_t i = 0; i < again.nodes().size(); ++i)
                if (again.nodes()[i].phase == Phase::recompute) flops += cost_of(again, i, i + 1).flops.count;
            EXPECT_NEAR(flops, block.again.count, 0.05 * flops) << block.block; // norms without their sums
            all += block.kept;
        }
        EXPECT_EQ(all.count, before);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, RecomputeFamilies, ::testing::ValuesIn(families), [](const auto& test) {
    std::string name = test.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

TEST(Recompute, KeepsOneRowOfTheResidualStreamPerBlock) {
    const Model model = random_model("gpt2"); // four layers, eight blocks between embedding and head
    const Graph step = step_of(model, {});
    const auto all = kept(recompute(step, blocks_of(step, 1, 0), Recompute::early));
    EXPECT_EQ(all, std::vector<TensorType>(8, {DType::float64, {batch, sequence, 64}}));
    EXPECT_EQ(kept(step).size(), 56u);
}

TEST(Recompute, LeavesOutWhatTheBackwardDoesNotNeed) {
    const Graph step = step_of(random_model("gpt2"), {});
    const Graph early = recompute(step, blocks_of(step, 1, 0), Recompute::early);
    const auto again = operators_of(early, Phase::recompute);
    // Queries, keys and values; up. Not the products that end blocks, but for the last, whose sum is normalised in its
    // own block.
    EXPECT_EQ(again.at("linear"), 2 * 4 + 1);
    EXPECT_EQ(again.at("layer_norm"), 8); // of sums that are there
    EXPECT_EQ(again.at("add_layer_norm"), 1);
    EXPECT_EQ(again.at("dropout"), 1); // others are drawn again in the backward anyway
    EXPECT_EQ(again.at("attention"), 4);
    EXPECT_FALSE(again.contains("iota"));
    // The loss is a result of the backward: nothing in the forward needs the last block.
    EXPECT_EQ(operators_of(early, Phase::forward).at("linear"), 2 * 8 - 2);

    const Graph post = step_of(random_model("bert"), {}); // norms end blocks, so sums are kept in their place
    const auto of_sums = operators_of(recompute(post, blocks_of(post, 1, 0), Recompute::early), Phase::recompute);
    EXPECT_EQ(of_sums.at("linear"), 2 * 4 + 1); // and one of the head
    EXPECT_FALSE(of_sums.contains("add_layer_norm"));

    const Graph within = recompute(step, blocks_of(step, 1, 0), Recompute::on_gradient);
    EXPECT_TRUE(operators_of(within, Phase::recompute).empty());
    EXPECT_EQ(operators_of(within, Phase::backward).at("attention"), 4);
}

TEST(Recompute, ChangesNothingInAPipelineEither) {
    for (const char* family : {"gpt2", "bert", "phi"}) {
        const Model model = random_model(family);
        const Tensors tokens = some_tokens(model);
        const std::vector<Block> blocks = find_blocks(model.graph);
        const std::vector<int> cuts = balance(blocks, 3);
        std::vector<Graph> kept_all, again;
        for (int stage = 0; stage < 3; ++stage) {
            kept_all.push_back(finished(differentiated(stage_graph(model.graph, blocks, cuts, stage), true), {}));
            again.push_back(recompute(kept_all.back(), blocks_of(kept_all.back(), 1, 0), Recompute::early));
        }
        const StepResult expected = run_stages(std::move(kept_all), tokens);
        EXPECT_EQ(difference(expected, run_stages(std::move(again), tokens)), 0) << family;
    }
}

// When the first gradient of a block is computed, later blocks' activations are no longer needed: at most one block's
// are there at a time.
TEST(Recompute, WithinTheBackwardMakesOneBlockAtATime) {
    const Graph step = step_of(random_model("llama"), {});
    const Graph within = recompute(step, blocks_of(step, 1, 0), Recompute::on_gradient);
    std::map<ValueId, std::size_t> last_read;
    for (std::size_t i = 0; i < within.nodes().size(); ++i)
        for (ValueId input : within.nodes()[i].inputs) last_read[within.value(input).storage] = i;
    std::map<int, std::pair<std::size_t, std::size_t>> alive; // per block, from the first made again to the last read
    for (std::size_t i = 0; i < within.nodes().size(); ++i) {
        const Node& node = within.nodes()[i];
        if (node.phase != Phase::backward || (node.op->name != "attention" && node.op->name != "gated")) continue;
        alive[node.block] = {i, last_read[node.outputs[0]]};
    }
    ASSERT_EQ(alive.size(), 8u);
    for (auto next = alive.begin(), block = next++; next != alive.end(); block = next++)
        EXPECT_GT(block->second.first, next->second.second);
}

TEST(RecomputeRule, IsReadAndPrinted) {
    for (const char* text : {"none", "full", "auto", "0.75", "1"})
        EXPECT_EQ(to_string(parse_recompute_rule(text)), text);
    for (const char* text : {"", "some", "0", "-0.5", "1.5", "nan", "0.5x"})
        EXPECT_THROW(parse_recompute_rule(text), Error) << text;
}

StageActivations equal_blocks(int first, int count, int in_flight, std::int64_t budget) {
    StageActivations stage{{budget}, {1000}, in_flight, {}};
    for (int b = 0; b < count; ++b) stage.blocks.push_back({first + b, {100}, {0}, {5}});
    return stage;
}

std::vector<double> fractions(const std::vector<StageActivations>& stages,
                              const std::vector<std::vector<int>>& chosen) {
    std::vector<double> result;
    for (std::size_t s = 0; s < stages.size(); ++s)
        result.push_back(static_cast<double>(chosen[s].size()) / static_cast<double>(stages[s].blocks.size()));
    return result;
}

// Merak's example: four stages, one micro-batch less in flight on each.
TEST(RecomputeChoice, LaterStagesKeepMoreAsTheyHoldFewerMicroBatches) {
    std::vector<StageActivations> stages;
    // 800 of the active micro-batch, and a quarter of 800 for each of three that wait in the first stage.
    for (int s = 0; s < 4; ++s) stages.push_back(equal_blocks(8 * s, 8, 4 - s, 1000 + 800 + 3 * 200));
    const std::vector<double> expected = {0.75, 0.625, 0.25, 0};
    for (const RecomputeRule& rule : {parse_recompute_rule("0.75"), parse_recompute_rule("auto")}) {
        const auto chosen = choose_recompute(stages, rule, Recompute::early);
        EXPECT_EQ(fractions(stages, chosen), expected) << to_string(rule);
        for (std::size_t s = 0; s < 4; ++s)
            EXPECT_LE(peak_of(stages[s], chosen[s], Recompute::early), stages[s].budget);
        EXPECT_EQ(chosen[1], (std::vector<int>{8, 9, 10, 11, 12}));
    }
    std::vector<StageActivations> eight; // r1 = 0.9 of 8 stages; as floors of hundredths: .90 .88 .86 .83 .77 .65 .30 0
    for (int s = 0; s < 8; ++s) eight.push_back(equal_blocks(100 * s, 100, 8 - s, 0));
    const auto chosen = choose_recompute(eight, parse_recompute_rule("0.9"), Recompute::early);
    EXPECT_EQ(fractions(eight, chosen), (std::vector<double>{0.90, 0.88, 0.86, 0.82, 0.76, 0.65, 0.30, 0}));
}

TEST(RecomputeChoice, NoneAndAll) {
    const std::vector<StageActivations> stages = {equal_blocks(0, 3, 2, 0), equal_blocks(3, 2, 1, 0)};
    const std::vector<std::vector<int>> none(2), all = {{0, 1, 2}, {3, 4}};
    EXPECT_EQ(choose_recompute(stages, parse_recompute_rule("none"), Recompute::early), none);
    EXPECT_EQ(choose_recompute(stages, parse_recompute_rule("full"), Recompute::early), all);
    EXPECT_EQ(choose_recompute(stages, parse_recompute_rule("full"), Recompute::never), none);
    // Nothing fits: as much as helps. The last stage has one micro-batch, whose activations are all there in any case.
    EXPECT_EQ(choose_recompute(stages, parse_recompute_rule("auto"), Recompute::early),
              (std::vector<std::vector<int>>{{0, 1, 2}, {}}));
    EXPECT_EQ(choose_recompute(stages, parse_recompute_rule("auto"), Recompute::on_gradient), all);
}

// Against every subset of small stages with odd sizes.
TEST(RecomputeChoice, TakesTheLeastWorkThatFits) {
    std::mt19937 random(5);
    auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
    int fitted = 0, partly = 0;
    for (int round = 0; round < 300; ++round) {
        StageActivations stage{{}, {number(0, 50)}, number(1, 4), {}};
        const int count = number(1, 8);
        Bytes most = stage.fixed;
        for (int b = 0; b < count; ++b) {
            const std::int64_t kept = number(1, 40);
            stage.blocks.push_back({b, {kept}, {number(0, static_cast<int>(kept) + 2)}, {1.0 * number(1, 9)}});
            most += stage.in_flight * Bytes{kept};
        }
        stage.budget = {number(static_cast<int>(most.count) / 2, static_cast<int>(most.count))};
        for (const Recompute when : {Recompute::early, Recompute::on_gradient}) {
            double least = std::numeric_limits<double>::infinity();
            auto work = [&](const std::vector<int>& blocks) {
                double sum = 0;
                for (int b : blocks) sum += stage.blocks[static_cast<std::size_t>(b)].again.count;
                return sum;
            };
            for (int subset = 0; subset < 1 << count; ++subset) {
                std::vector<int> blocks;
                for (int b = 0; b < count; ++b)
                    if (subset >> b & 1) blocks.push_back(b);
                if (peak_of(stage, blocks, when) <= stage.budget) least = std::min(least, work(blocks));
            }
            const auto chosen = choose_recompute(std::span(&stage, 1), parse_recompute_rule("auto"), when)[0];
            const bool fits = peak_of(stage, chosen, when) <= stage.budget;
            EXPECT_EQ(fits, std::isfinite(least));
            if (fits) {
                EXPECT_EQ(work(chosen), least);
            }
            fitted += fits;
            partly += fits && !chosen.empty();
        }
    }
    EXPECT_GT(fitted, 200);
    EXPECT_GT(partly, 100);
}

} // namespace
} // namespace tutti::test

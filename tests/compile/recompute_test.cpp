// Recomputation changes what is kept, and not a bit of what is computed.
#include "compile/graphs/recompute.h"

#include "base/error.h"
#include "compile/step_run.h"
#include "graph/verify.h"
#include "planner/stages/cuts.h"

#include <gtest/gtest.h>

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
            EXPECT_NEAR(flops, block.recomputed.count, 0.05 * flops) << block.block; // norms without their sums
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
        const std::vector<int> cuts = planner::balance(blocks, 3);
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

} // namespace
} // namespace tutti::test

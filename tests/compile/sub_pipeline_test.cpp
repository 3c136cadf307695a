// Micro-batches in halves, and orders that let collectives run beneath what is computed: which node stands where, and
// that nothing else changes.
#include "compile/graphs/sub_pipeline.h"

#include "compile/graphs/overlap.h"
#include "compile/graphs/recompute.h"
#include "compile/step_run.h"
#include "graph/rewriter.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "ops/operators.h"
#include "planner/stages/cuts.h"
#include "sharding/shard.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::test {

using namespace compile;
using namespace models;
using namespace ops;
using namespace schedule;
using namespace sharding;
namespace {

const Attributes sums = {{"axis", std::string("tensor")}, {"combine", std::string("sum")}};

bool ends_a_split(const Node& node) { // as tensor parallelism splits GPT-2: columns, then rows
    const bool forward = node.op->name == "linear" && node.source.ends_with("c_proj");
    const bool backward =
        node.op->name == "linear_input_gradient" && (node.source.ends_with("c_attn") || node.source.ends_with("c_fc"));
    return forward || backward;
}

// With one rank's collectives, whose results are their inputs.
Graph with_collectives(const Graph& plain) {
    Rewriter rewriter(plain);
    for (const Node& node : plain.nodes()) {
        rewriter.enter(node);
        rewriter.copy(node, rewriter.renamed(node.inputs));
        if (ends_a_split(node))
            rewriter.add("all_reduce", {rewriter.renamed(node.outputs[0])}, sums, node.source, {node.outputs[0]});
    }
    return rewriter.finish();
}

Graph without_collectives(const Graph& graph) {
    Rewriter rewriter(graph);
    for (const Node& node : graph.nodes()) {
        rewriter.enter(node);
        if (node.op->collective)
            rewriter.rename(node.outputs[0], rewriter.renamed(node.inputs[0]));
        else
            rewriter.copy(node, rewriter.renamed(node.inputs));
    }
    return rewriter.finish();
}

std::vector<Graph> step_graphs(const Model& model, int stages, const FusionOptions& fusion) {
    const std::vector<Block> blocks = find_blocks(model.graph);
    const std::vector<int> cuts = planner::balance(blocks, stages);
    std::vector<Graph> steps;
    for (int stage = 0; stage < stages; ++stage)
        steps.push_back(
            finished(differentiated(stage_graph(model.graph, blocks, cuts, stage), fusion.merge_linears), fusion));
    return steps;
}

class HalvesFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(HalvesFamilies, GiveTheLossAndTheGradientsOfTheWhole) {
    for (const auto& [half, stages] : {std::pair<std::int64_t, int>{1, 1}, {3, 2}}) {
        const Model model = random_model(GetParam(), 2 * half), of_half = random_model(GetParam(), half);
        const Tensors tokens = some_tokens(model, 2 * half);
        const StepResult expected = run_stages(step_graphs(model, 1, no_fusion), tokens);
        std::vector<Graph> steps;
        for (const Graph& step : step_graphs(of_half, stages, {})) {
            std::vector<int> odd;
            for (const BlockActivations& block : measure_activations(step))
                if (block.block % 2 == 1) odd.push_back(block.block);
            steps.push_back(
                sub_pipelined(recompute(step, odd, stages == 1 ? Recompute::early : Recompute::on_gradient), half));
        }
        EXPECT_LE(difference(expected, run_stages(std::move(steps), tokens)), 1e-12) << half;
    }
}

INSTANTIATE_TEST_SUITE_P(Families, HalvesFamilies, ::testing::ValuesIn(families), [](const auto& test) {
    std::string name = test.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

TEST(Halves, OutputsAreThoseOfTheWholeMicroBatch) {
    const Model whole = random_model("gpt2", 4), half = random_model("gpt2", 2);
    for (int stage = 0; stage < 3; ++stage) {
        const Graph expected = step_graphs(whole, 3, no_fusion)[static_cast<std::size_t>(stage)],
                    found = sub_pipelined(step_graphs(half, 3, no_fusion)[static_cast<std::size_t>(stage)], 2);
        ASSERT_EQ(found.inputs().size(), expected.inputs().size());
        for (std::size_t i = 0; i < found.inputs().size(); ++i) {
            EXPECT_EQ(found.value(found.inputs()[i]).name, expected.value(expected.inputs()[i]).name);
            EXPECT_EQ(found.type(found.inputs()[i]), expected.type(expected.inputs()[i]));
        }
        std::map<std::string, int> contributions;
        for (const Output& output : found.outputs())
            if (output.parameter != ValueId::none) ++contributions[output.name];
        for (const Output& output : expected.outputs()) {
            if (output.parameter != ValueId::none) {
                contributions[output.name] -= 2;
                continue;
            }
            const Output* same = found.output(output.name);
            ASSERT_NE(same, nullptr) << output.name;
            EXPECT_EQ(found.type(same->value), expected.type(output.value)) << output.name;
        }
        for (const auto& [name, left] : contributions) EXPECT_EQ(left, 0) << name;
        // What depends on no sample is there once: the positions and what is looked up for them.
        const auto count = std::ranges::count(found.nodes(), "iota", [](const Node& n) { return n.op->name; });
        EXPECT_EQ(count, stage == 0 ? 1 : 0);
    }
}

// Which half a node belongs to: the one whose part of an input it can be traced to; -1 where it is of both or none.
std::vector<int> halves_of(const Graph& graph) {
    std::vector<int> of_value(graph.values().size(), -1), of_node;
    for (const Node& node : graph.nodes()) {
        std::set<int> halves;
        for (ValueId input : node.inputs)
            if (of_value[index(input)] >= 0) halves.insert(of_value[index(input)]);
        int half = halves.size() == 1 ? *halves.begin() : -1;
        if (node.op->name == "slice" && graph.value(node.inputs[0]).producer == NodeId::none)
            half = node.attributes.integer("start") == 0 ? 0 : 1;
        for (ValueId output : node.outputs) of_value[index(output)] = half;
        of_node.push_back(half);
    }
    return of_node;
}

TEST(Halves, TakeTurnsFromCollectiveToCollective) {
    const Model half = random_model("gpt2", 1);
    const Graph step = with_collectives(step_graphs(half, 1, {})[0]);
    std::vector<int> all;
    for (const BlockActivations& block : measure_activations(step)) all.push_back(block.block);
    const Graph found = sub_pipelined(recompute(step, all, Recompute::early), 1);
    verify(found);
    const std::vector<int> of = halves_of(found);
    for (const Phase phase : {Phase::forward, Phase::recompute, Phase::backward}) {
        // Of the recomputed blocks only the last one's sum is needed. The forward does without the last block.
        const int expected = phase == Phase::forward ? 14 : phase == Phase::recompute ? 2 : 16;
        int next = 0, collectives = 0;
        for (std::size_t i = 0; i < found.nodes().size(); ++i) {
            const Node& node = found.nodes()[i];
            if (node.phase != phase || of[i] < 0 || node.op->view) continue;
            if (collectives < expected) {
                EXPECT_EQ(of[i], next) << node.op->name << " at " << node.source;
            }
            if (!node.op->collective) continue;
            ++collectives;
            next = 1 - next;
        }
        EXPECT_EQ(collectives, expected);
    }
}

TEST(Overlap, PutsWeightGradientsBehindTheCollectiveOfTheirLayer) {
    const Graph step = with_collectives(step_graphs(random_model("gpt2"), 1, {})[0]);
    const Graph found = overlap_order(step);
    verify(found);
    int beneath = 0;
    for (std::size_t i = 0; i < found.nodes().size(); ++i) {
        const Node& node = found.nodes()[i];
        if (!node.op->collective || node.phase != Phase::backward) continue;
        const Node &weight = found.nodes()[i + 1], &bias = found.nodes()[i + 2];
        EXPECT_EQ(weight.op->name, "linear_weight_gradient");
        EXPECT_EQ(bias.op->name, "bias_gradient");
        EXPECT_EQ(weight.source, node.source);
        EXPECT_EQ(bias.source, node.source);
        ++beneath;
    }
    EXPECT_EQ(beneath, 8);
    // Those of layers whose input gradient is not reduced stay where they were: right behind it.
    for (std::size_t i = 1; i < found.nodes().size(); ++i) {
        const Node& node = found.nodes()[i];
        if (node.op->name != "linear_weight_gradient" || !node.source.ends_with("c_proj")) continue;
        EXPECT_EQ(found.nodes()[i - 1].op->name, "linear_input_gradient");
    }
}

// As real models are sharded over two ranks. Without sequence parallelism nothing of the backward's collectives is left
// without a matmul beneath it.
TEST(Overlap, FindsWeightGradientsInGraphsThatAreSpreadOverRanks) {
    for (const char* family : {"gpt2", "llama", "bert"})
        for (const bool sequence_parallel : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {}", family, sequence_parallel));
            const Model model = random_model(family);
            const Graph whole =
                add_matmuls_first(differentiated(stage_graph(model.graph, find_blocks(model.graph), {}, 0), false));
            const AxisPlace place{"tensor", 1, 2};
            const Assignment assignment = default_assignment(whole, place, {sequence_parallel, {}});
            const Graph found = overlap_order(finished(shard(whole, place, assignment).graph, {}));
            verify(found);
            int reductions = 0, beneath = 0;
            for (std::size_t i = 0; i + 1 < found.nodes().size(); ++i) {
                const Node& node = found.nodes()[i];
                EXPECT_GE(node.block, 0) << node.op->name << " at " << node.source;
                if (!node.op->collective || node.phase != Phase::backward || node.op->name == "all_gather") continue;
                const Node& maker = found.node(found.value(node.inputs[0]).producer);
                if (maker.op->name != "linear_input_gradient") continue;
                ++reductions;
                const std::size_t behind = found.nodes()[i + 1].op->view ? i + 2 : i + 1;
                beneath += found.nodes()[behind].op->name == "linear_weight_gradient";
            }
            EXPECT_GE(reductions, 8);
            EXPECT_EQ(beneath, reductions);
        }
}

TEST(Overlap, ChangesNothingButTheOrder) {
    for (const char* family : {"gpt2", "gpt2-variant"}) {
        const Model model = random_model(family);
        const Tensors tokens = some_tokens(model);
        const Graph step = step_graphs(model, 1, {})[0];
        const Graph found = overlap_order(with_collectives(step));
        EXPECT_EQ(found.nodes().size(), with_collectives(step).nodes().size());
        std::vector<Graph> plain, ordered, halved;
        plain.push_back(step);
        ordered.push_back(without_collectives(found));
        const StepResult expected = run_stages(std::move(plain), tokens);
        EXPECT_EQ(difference(expected, run_stages(std::move(ordered), tokens)), 0);
        halved.push_back(without_collectives(
            sub_pipelined(overlap_order(with_collectives(step_graphs(random_model(family, 1), 1, {})[0])), 1)));
        EXPECT_LE(difference(expected, run_stages(std::move(halved), tokens)), 1e-12);
        EXPECT_EQ(to_text(overlap_order(found)), to_text(found));
    }
}

TEST(Overlap, WhatDoesNotNeedACollectiveComesBeforeWhatDoes) {
    Graph graph(all_operators());
    const ValueId x = graph.add_input("x", {DType::float32, {4}});
    const ValueId a = graph.add("all_reduce", {x}, sums);
    const ValueId b = graph.add("exp", {a});
    const ValueId c = graph.add("tanh", {b});
    const ValueId d = graph.add("silu", {x});
    const ValueId e = graph.add("relu", {d});
    const ValueId f = graph.add("add", {c, e});
    const ValueId g = graph.add("all_reduce", {f}, sums);
    const ValueId h = graph.add("add", {g, c});
    const ValueId i = graph.add("sigmoid", {c}); // needs only the first
    graph.add_output({"y", h, ValueId::none});
    graph.add_output({"z", i, ValueId::none});
    const Graph found = overlap_order(graph);
    verify(found);
    std::string order;
    for (const Node& node : found.nodes()) order += std::string(node.op->name) + " ";
    EXPECT_EQ(order, "all_reduce silu relu exp tanh add all_reduce sigmoid add ");
}

} // namespace
} // namespace tutti::test

// Models cut into stages: where they are cut, and that a pipeline of stages computes what the whole does.
#include "compile/graphs/stages.h"

#include "base/error.h"
#include "compile/step_run.h"
#include "graph/passes.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "ops/operators.h"
#include "planner/stages/cuts.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::test {

using namespace compile;
using namespace models;
using namespace ops;
using namespace sharding;
namespace {

std::vector<Graph> step_graphs(const Graph& forward, const std::vector<Block>& blocks, const std::vector<int>& cuts,
                               const FusionOptions& fusion) {
    std::vector<Graph> steps;
    for (int stage = 0; stage <= static_cast<int>(cuts.size()); ++stage)
        steps.push_back(
            finished(differentiated(stage_graph(forward, blocks, cuts, stage), fusion.merge_linears), fusion));
    return steps;
}

StepResult run_whole(const Model& model, const Tensors& tokens) {
    std::vector<Graph> whole;
    whole.push_back(make_training_graph(model.graph, model.loss, no_fusion));
    return run_stages(std::move(whole), tokens);
}

class Stages : public ::testing::TestWithParam<std::string> {};

TEST_P(Stages, OneAfterTheOtherGiveTheLossAndTheGradientsOfTheWhole) {
    const Model model = random_model(GetParam());
    const Tensors tokens = some_tokens(model);
    const StepResult expected = run_whole(model, tokens);
    ASSERT_TRUE(std::isfinite(expected.loss));
    const std::vector<Block> blocks = find_blocks(model.graph);
    for (int count = 1; count <= static_cast<int>(blocks.size()); ++count) {
        SCOPED_TRACE(count);
        const auto fusion = count % 2 == 0 ? FusionOptions{} : no_fusion;
        const StepResult found =
            run_stages(step_graphs(model.graph, blocks, planner::balance(blocks, count), fusion), tokens);
        EXPECT_LE(difference(expected, found), 1e-12);
    }
}

TEST_P(Stages, HaveTheTensorsTheyUseAndMatchingBoundaries) {
    const Model model = random_model(GetParam());
    const std::vector<Block> blocks = find_blocks(model.graph);
    std::vector<int> cuts(blocks.size() - 1);
    std::iota(cuts.begin(), cuts.end(), 1);
    std::vector<TensorType> handed;
    std::size_t nodes = 0;
    std::set<std::string> stored;
    for (int s = 0; s < static_cast<int>(blocks.size()); ++s) {
        const Graph stage = stage_graph(model.graph, blocks, cuts, s);
        verify(stage);
        std::vector<TensorType> taken, given;
        for (ValueId input : stage.inputs())
            if (stage.value(input).name.starts_with(stage_input)) taken.push_back(stage.type(input));
        for (const Output& output : stage.outputs())
            if (output.name.starts_with(stage_output)) given.push_back(stage.type(output.value));
        EXPECT_EQ(taken, handed);
        EXPECT_EQ(given.empty(), s == static_cast<int>(cuts.size()));
        handed = given;
        nodes += blocks[static_cast<std::size_t>(s)].nodes.size();
        std::int64_t elements = 0;
        for (const StoredTensor& tensor : stage.stored()) {
            stored.insert(tensor.name);
            elements += tensor.type.elements();
        }
        EXPECT_EQ(elements, blocks[static_cast<std::size_t>(s)].parameters);
        for (const Node& node : stage.nodes()) EXPECT_EQ(node.block, s) << node.source;
        // Only the ends see tokens; the residual stream is all that crosses.
        const bool inner = s > 0 && s < static_cast<int>(cuts.size());
        EXPECT_EQ(stage.inputs().size(), inner ? 1u : s == 0 ? 1u : 2u);
    }
    EXPECT_EQ(stored.size(), model.graph.stored().size());
    EXPECT_NE(stage_graph(model.graph, blocks, cuts, static_cast<int>(cuts.size())).output("logits"), nullptr);
}

TEST_P(Stages, AWholeModelAsOneStageIsTheModel) {
    const Model model = random_model(GetParam());
    const Graph stage = stage_graph(model.graph, find_blocks(model.graph), {}, 0);
    std::string found = to_text(stage);
    for (std::size_t at; (at = found.find(" #")) != std::string::npos;) found.erase(at, found.find('\n', at) - at);
    // Inputs and parameters come first in a stage, so its values are numbered otherwise. A pass does the same.
    EXPECT_EQ(found, to_text(eliminate_dead_code(model.graph)));
}

INSTANTIATE_TEST_SUITE_P(Families, Stages, ::testing::ValuesIn(families), [](const auto& test) {
    std::string name = test.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

TEST(Blocks, AreTwoPerLayerOrOneWhereAttentionAndFeedForwardRunSideBySide) {
    const std::map<std::string, std::size_t> expected = {
        {"gpt2", 1 + 2 * 4 + 1},
        {"gpt2-variant", 1 + 2 * 2 + 1},
        {"llama", 1 + 2 * 4 + 1},
        {"mistral", 1 + 2 * 2 + 1},
        {"qwen2", 1 + 2 * 4 + 1},
        {"qwen3", 1 + 2 * 2 + 1},
        {"gemma", 1 + 2 * 2 + 1},
        {"olmo2", 1 + 2 * 2 + 1},
        {"opt", 1 + 2 * 2 + 1},
        {"opt-plain", 1 + 2 * 2 + 1},
        {"gpt_neox", 1 + 2 + 1},
        {"gpt_neox-sequential", 1 + 4 + 1},
        {"phi", 1 + 2 + 1},
        {"phi-qk", 1 + 2 + 1},
        {"bert", 1 + 2 * 4 + 2},
        {"bert-untied", 1 + 2 * 2 + 2},
        {"roberta", 1 + 2 * 2 + 2},      // the head has two matmuls
        {"opt-post", 1 + 1 + 2 * 2 + 2}, // projections from and to narrow embeddings
    };
    for (const std::string& family : families) {
        EXPECT_EQ(find_blocks(random_model(family).graph).size(), expected.at(family)) << family;
        EXPECT_EQ(find_blocks(random_model(family, 1).graph).size(), expected.at(family)) << family;
    }
}

// A decoder of `layers` layers that read an encoder's output beside their residual stream, all but the second; and then
// a head. `readers` matmuls per layer read the encoder's output.
struct EncoderDecoder {
    Graph graph{all_operators()};
    ValueId loss = ValueId::none;

    EncoderDecoder(int layers, int readers) {
        const ValueId source = graph.add_input("source", {DType::int64, {2, 3}}),
                      ids = graph.add_input("input_ids", {DType::int64, {2, 3}}),
                      targets = graph.add_input("targets", {DType::int64, {2, 3}});
        const ValueId encoded =
            linear(graph.add("embedding", {weight("encoder", 7), source}, {}, "encoder"), "encoded");
        ValueId x = graph.add("embedding", {weight("decoder", 7), ids}, {}, "decoder");
        for (int layer = 0; layer < layers; ++layer) {
            ValueId y = linear(x, fmt::format("{}.x", layer));
            for (int reader = 0; layer != 1 && reader < readers; ++reader)
                y = graph.add("add", {y, linear(encoded, fmt::format("{}.{}", layer, reader))}, {}, "mix");
            x = graph.add("add", {x, graph.add("tanh", {y}, {}, "mix")}, {}, "residual");
        }
        const ValueId logits = graph.add("linear", {x, weight("head", 7)}, {}, "head");
        loss = graph.add("cross_entropy", {logits, targets}, {{"ignore_index", std::int64_t{-100}}}, "loss");
        graph.add_output({"loss", loss, ValueId::none});
    }
    ValueId weight(const std::string& name, std::int64_t rows) {
        return graph.add_parameter(graph.add_stored(name, {DType::float64, {rows, 4}}));
    }
    ValueId linear(ValueId x, const std::string& name) { return graph.add("linear", {x, weight(name, 4)}, {}, name); }
};

TEST(Blocks, WhatManyOfThemReadRidesAlong) {
    const EncoderDecoder model(4, 2);
    const std::vector<Block> blocks = find_blocks(model.graph);
    ASSERT_EQ(blocks.size(), 1 + 1 + 4 + 1u); // embedding, encoder, layers, head
    for (std::size_t b = 2; b < 6; ++b) EXPECT_EQ(blocks[b].inputs.size(), 2u) << b;
    EXPECT_EQ(blocks[6].inputs.size(), 1u); // nothing reads the encoder's output any more
    EXPECT_EQ(blocks[3].boundary, (Bytes{2 * 2 * 3 * 4 * 8}));
    // Where it is no more than a long residual it keeps its readers together.
    EXPECT_EQ(find_blocks(EncoderDecoder(4, 1).graph).size(), 1 + 1 + 1 + 1u);
    EXPECT_EQ(find_blocks(EncoderDecoder(2, 6).graph).size(), 1 + 1 + 2 + 1u); // only the first layer reads it
}

// Through the stage of the second layer the encoder's output passes without being used, and its gradient comes back.
TEST(Stages, HandOnWhatTheyDoNotUse) {
    const EncoderDecoder model(4, 2);
    const std::vector<Block> blocks = find_blocks(model.graph);
    const std::vector<int> cuts = {1, 2, 3, 4, 5, 6};
    const Graph passing = differentiated(stage_graph(model.graph, blocks, cuts, 3), true);
    EXPECT_EQ(passing.value(passing.output("stage_output/0")->value).name, "stage_input/0");
    EXPECT_EQ(passing.value(passing.output("stage_input_gradient/0")->value).name, "stage_output_gradient/0");

    Tensors tokens;
    for (const char* name : {"source", "input_ids", "targets"}) tokens[name] = {0, 1, 2, 6, 4, 1};
    std::vector<Graph> whole;
    whole.push_back(make_training_graph(model.graph, model.loss, no_fusion));
    const StepResult expected = run_stages(std::move(whole), tokens);
    EXPECT_LE(difference(expected, run_stages(step_graphs(model.graph, blocks, cuts, {}), tokens)), 1e-12);
    EXPECT_LE(difference(expected, run_stages(step_graphs(model.graph, blocks, std::vector{3}, {}), tokens)), 1e-12);
}

// Views are made where they are read, so a cut may fall between a value and its view; and a value that has no gradient
// gets zeros for one.
TEST(Stages, SendValuesAndNotTheirViews) {
    Graph graph(all_operators());
    auto weight = [&](const char* name, Shape shape) {
        return graph.add_parameter(graph.add_stored(name, {DType::float64, shape}));
    };
    const ValueId x = graph.add_input("x", {DType::float64, {3, 8}});
    const ValueId y = graph.add("linear", {x, weight("first", {8, 8})}, {}, "first");
    const ValueId turned = graph.add("transpose", {y}, {{"permutation", std::vector<std::int64_t>{1, 0}}}, "turn");
    const ValueId z = graph.add("linear", {turned, weight("second", {5, 3})}, {}, "second");
    const ValueId signs = graph.add("less", {z, z}, {}, "signs");
    const ValueId none = graph.add("cast", {signs}, {{"dtype", std::string("float64")}}, "signs");
    const ValueId sum = graph.add("add", {none, weight("third", {5})}, {}, "third");
    const ValueId last = graph.add("linear", {sum, weight("fourth", {2, 5})}, {}, "fourth");
    const ValueId loss = graph.add("reduce_sum", {last}, {{"dims", std::vector<std::int64_t>{0, 1}}}, "loss");
    graph.add_output({"loss", loss, ValueId::none});
    const std::vector<Block> blocks = find_blocks(graph);
    ASSERT_EQ(blocks.size(), 3u);
    EXPECT_EQ(blocks[1].inputs, std::vector{y});
    const std::vector<int> cuts = {1, 2};
    const Graph second = stage_graph(graph, blocks, cuts, 1);
    EXPECT_EQ(second.nodes()[0].op->name, "transpose");
    const Graph step = finished(differentiated(second, true), {});
    const Output* gradient = step.output("stage_input_gradient/0");
    ASSERT_NE(gradient, nullptr);
    EXPECT_EQ(step.type(gradient->value), graph.type(y));

    std::vector<double> values(24);
    std::iota(values.begin(), values.end(), -9);
    std::vector<Graph> whole;
    whole.push_back(make_training_graph(graph, loss, no_fusion));
    const StepResult expected = run_stages(std::move(whole), {{"x", values}});
    const StepResult found = run_stages(step_graphs(graph, blocks, cuts, {}), {{"x", values}});
    EXPECT_EQ(found.loss, expected.loss);
    EXPECT_EQ(found.gradients.at("fourth"), expected.gradients.at("fourth"));
    EXPECT_EQ(norm(found.gradients.at("first")), 0);
}

// A quadratic search would take minutes.
TEST(Blocks, AreFoundInTimeThatGrowsWithTheLayers) {
    constexpr int layers = 10000;
    Graph graph(all_operators());
    ValueId x = graph.add_input("x", {DType::float32, {2, 4}});
    for (int layer = 0; layer < layers; ++layer) {
        const ValueId weight =
            graph.add_parameter(graph.add_stored(fmt::format("w{}", layer), {DType::float32, {4, 4}}));
        x = graph.add("add", {x, graph.add("tanh", {graph.add("linear", {x, weight})})});
    }
    graph.add_output({"y", x, ValueId::none});
    const std::vector<Block> blocks = find_blocks(graph);
    ASSERT_EQ(blocks.size(), static_cast<std::size_t>(layers));
    EXPECT_EQ(stage_graph(graph, blocks, std::vector{layers - 2}, 1).nodes().size(), 6u);
}

TEST(Stages, CutsThatDoNotFitAreAnError) {
    const Model model = random_model("phi");
    const std::vector<Block> blocks = find_blocks(model.graph); // four
    for (const std::vector<int>& cuts : {std::vector{0}, {4}, {-1}, {2, 2}, {3, 1}, {1, 2, 3, 4}})
        EXPECT_THROW(stage_graph(model.graph, blocks, cuts, 0), Error);
    try {
        stage_graph(model.graph, blocks, std::vector{3, 1}, 1);
        FAIL() << "cuts that fall";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "cuts of a model of 4 blocks are growing numbers from 1 to 3, not 3, 1");
    }
}

} // namespace
} // namespace tutti::test

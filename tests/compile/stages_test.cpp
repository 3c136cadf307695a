// Models cut into stages: where they are cut, how evenly, and that a pipeline of stages computes what the whole does.
#include "compile/stages.h"

#include "base/error.h"
#include "compile/step_run.h"
#include "graph/passes.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <set>

namespace tutti::test {
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
        const StepResult found = run_stages(step_graphs(model.graph, blocks, balance(blocks, count), fusion), tokens);
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
        {"opt", 1 + 2 * 2 + 1},
        {"opt-plain", 1 + 2 * 2 + 1},
        {"gpt_neox", 1 + 2 + 1},
        {"gpt_neox-sequential", 1 + 4 + 1},
        {"phi", 1 + 2 + 1},
        {"phi-qk", 1 + 2 + 1},
        {"bert", 1 + 2 * 4 + 2},
        {"bert-untied", 1 + 2 * 2 + 2},
        {"roberta", 1 + 2 * 2 + 2},      // the head has two products
        {"opt-post", 1 + 1 + 2 * 2 + 2}, // projections from and to narrow embeddings
    };
    for (const std::string& family : families) {
        EXPECT_EQ(find_blocks(random_model(family).graph).size(), expected.at(family)) << family;
        EXPECT_EQ(find_blocks(random_model(family, 1).graph).size(), expected.at(family)) << family;
    }
}

} // namespace
} // namespace tutti::test

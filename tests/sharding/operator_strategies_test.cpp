// Whatever is chosen, the loss, the logits and the gradients are those of one device.
#include "base/error.h"
#include "sharding/compare.h"
#include "sharding/families.h"
#include "sharding/operator_strategies.h"
#include "sharding/random.h"
#include "sharding/random_strategies.h"
#include "sharding/shard_axes.h"
#include "sharding/strategy.h"
#include "sharding/styles.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tutti::testing {

using namespace sharding;
namespace {

ShardedMesh shard_by(const Graph& step, const ShardAxesOptions& options) {
    ShardedMesh mesh{places_of(options.strategies, 0), {}};
    int ranks = 1;
    for (int size : options.strategies.axes) ranks *= size;
    for (int rank = 0; rank < ranks; ++rank) {
        ShardedAxes sharded = shard_axes(step, rank, options);
        mesh.ranks.push_back({std::move(sharded.graph), std::move(sharded.stored), std::move(sharded.partial),
                              std::move(sharded.inputs), std::move(sharded.outputs)});
    }
    return mesh;
}

Graph small(const std::string& family, double dropout = 0) {
    nlohmann::json settings = {{"num_attention_heads", 4},
                               {"num_key_value_heads", 4},
                               {"head_dim", 8},
                               {"hidden_size", 32},
                               {"num_hidden_layers", 2},
                               {"n_layer", 2},
                               {"n_embd", 32},
                               {"n_head", 4},
                               {"vocab_size", 61},
                               {"intermediate_size", 46}};
    if (dropout > 0)
        for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout_prob",
                                "attention_probs_dropout_prob", "attention_dropout"})
            settings[key] = dropout;
    return step_graph(build(family, {4, 7, DType::float64}, settings));
}

std::string text(const OperatorStrategies& strategies) {
    std::string all;
    for (const OperatorStrategy& one : strategies.operators)
        all += fmt::format("{} {} {}: {}{}{}\n", one.name.source, one.name.op, one.name.ordinal,
                           fmt::join(one.split, ", "), one.keep_gathered ? " keeps" : "",
                           one.reduce_at_once ? " reduces at once" : "");
    return all;
}

class AnyChoice : public ::testing::TestWithParam<std::string> {};

TEST_P(AnyChoice, GivesTheNumbersOfOneDevice) {
    const Graph step = small(GetParam(), 0.2);
    const Numbers numbers = draw_numbers(step);
    for (const std::vector<int>& axes : std::vector<std::vector<int>>{{2}, {3}, {4}, {2, 2}})
        for (std::uint32_t trial = 0; trial < 4; ++trial) {
            Random random(100 * static_cast<std::uint32_t>(axes.size()) + 10 * static_cast<std::uint32_t>(axes[0]) +
                          trial);
            const OperatorStrategies strategies = random_choices(step, axes, random);
            SCOPED_TRACE(fmt::format("axes {}, trial {}\n{}", axes_text(strategies), trial, text(strategies)));
            const ShardedMesh mesh = shard_by(step, {strategies, random.one_in(2)});
            EXPECT_EQ(differences(step, mesh, numbers), std::vector<std::string>{});
        }
}

INSTANTIATE_TEST_SUITE_P(Families, AnyChoice, ::testing::Values("gpt2", "llama", "bert"));

int count_nodes(const Graph& graph, std::string_view op, Phase phase) {
    return static_cast<int>(std::ranges::count_if(
        graph.nodes(), [&](const Node& node) { return node.op->name == op && node.phase == phase; }));
}

// Weights are gathered before their matmuls, in the forward and again in the backward, and their gradients scattered;
// activations are never communicated.
TEST(OperatorStrategies, ByBatchWithSpreadWeightsMoveNothingButWeights) {
    for (const char* family : {"gpt2", "llama"}) {
        SCOPED_TRACE(family);
        const Graph step = small(family);
        const ShardedAxes rank = shard_axes(step, 1, {choose(step, by_batch(2))});
        int losses = 0;
        for (const Node& node : rank.graph.nodes()) {
            const ValueId input = node.inputs.empty() ? ValueId::none : node.inputs[0], output = node.outputs[0];
            if (node.op->name == "all_gather") {
                EXPECT_NE(rank.graph.parameter_of(input), nullptr) << node.source;
            }
            if (node.op->name == "reduce_scatter") {
                EXPECT_TRUE(std::ranges::any_of(rank.graph.outputs(), [&](const Output& one) {
                    return one.value == output && one.parameter != ValueId::none;
                })) << node.source;
            }
            EXPECT_NE(node.op->name, "all_to_all") << node.source;
            if (node.op->name == "all_reduce") { // the loss, and what the samples give to positions
                EXPECT_LT(rank.graph.shape(input).rank(), 3) << node.source;
                losses += node.source == "loss";
            }
        }
        EXPECT_EQ(losses, 1);
        for (std::size_t s = 0; s < step.stored().size(); ++s) {
            const std::int64_t whole = step.stored()[s].type.elements();
            EXPECT_EQ(rank.graph.stored()[s].type.elements(), whole / 2) << step.stored()[s].name;
            EXPECT_FALSE(rank.partial[0][s]) << step.stored()[s].name;
        }
    }
}

// A gradient is scattered as soon as it is there: only a few are whole at a time.
TEST(OperatorStrategies, GradientsOfSpreadWeightsAreScatteredAtOnce) {
    const Graph step = small("llama");
    const Graph graph = shard_axes(step, 0, {choose(step, by_batch(2))}).graph;
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
        const Node& node = graph.nodes()[i];
        if (node.op->name != "reduce_scatter") continue;
        EXPECT_LE(i - index(graph.value(node.inputs[0]).producer), 2u) << node.source;
    }
}

TEST(OperatorStrategies, GatheredInputsAreKeptOrGatheredAgain) {
    const Graph step = small("llama");
    auto gathers = [&](bool keep) {
        return count_nodes(shard_axes(step, 0, {choose(step, by_columns(2, keep, false)), true}).graph, "all_gather",
                           Phase::backward);
    };
    EXPECT_EQ(gathers(false) - gathers(true), 2 * 2 + 1); // two norms in each of two layers, and the last
}

TEST(OperatorStrategies, PartialGradientsAreReducedOneByOneOrTogether) {
    const Graph step = small("llama");
    auto reductions = [&](bool at_once) {
        return count_nodes(shard_axes(step, 0, {choose(step, by_columns(2, false, at_once)), false}).graph,
                           "all_reduce", Phase::backward);
    };
    EXPECT_EQ(reductions(true) - reductions(false), 2 * (2 + 1)); // of queries, keys, values; of gate and up
}

// The backward of an operator splits the loop that its forward does.
TEST(OperatorStrategies, TheBackwardFollows) {
    const Graph step = small("llama");
    const Graph graph = shard_axes(step, 0, {choose(step, by_batch(2))}).graph;
    int products = 0;
    for (const Node& node : graph.nodes())
        if (node.op->name == "linear_weight_gradient" || node.op->name == "attention_gradient") {
            EXPECT_EQ(graph.shape(node.inputs[0])[0], 2) << node.source; // of four samples
            ++products;
        }
    EXPECT_EQ(products, 2 * 8 + 1);
}

TEST(OperatorStrategies, AnOperatorsOwnNameGoesBeforePatterns) {
    const OperatorStrategies strategies{
        .axes = {2}, .operators = {{{"h.*.a", "linear", 0}, {"n"}}, {{"h.1.a", "linear", 0}, {"k"}}}};
    EXPECT_EQ(strategy_for(strategies, {"h.1.a", "linear", 0})->split[0], "k");
    EXPECT_EQ(strategy_for(strategies, {"h.12.a", "linear", 0})->split[0], "n");
    EXPECT_EQ(strategy_for(strategies, {"h.12.a", "linear", 1}), nullptr);
    EXPECT_EQ(strategy_for(strategies, {"h.x.a", "linear", 0}), nullptr);
    EXPECT_EQ(layer_pattern("h.12.a3.4"), "h.*.a3.*");
    EXPECT_TRUE(fits("*.a", "0.a"));
    EXPECT_FALSE(fits("a.*", "a."));
    EXPECT_FALSE(fits("a", "a."));
    EXPECT_FALSE(fits("a.*", "a.1.2"));
}

} // namespace
} // namespace tutti::testing

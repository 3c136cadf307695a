// Every family of models, sharded by default, gives the loss, the logits and the gradients of one device: with even and
// uneven heads, an odd vocabulary, sequences that do not divide, and dropout.
#include "graph/fuse.h"
#include "sharding/compare.h"
#include "sharding/families.h"

#include <gtest/gtest.h>

namespace tutti::testing {

using namespace models;
using namespace sharding;
namespace {

class Families : public ::testing::TestWithParam<std::string> {
  protected:
    void expect_same(int size, bool sequence_parallel, const nlohmann::json& settings) {
        SCOPED_TRACE(fmt::format("{} ranks, sequence {}", size, sequence_parallel ? "split" : "whole"));
        const Graph step = step_graph(build(GetParam(), {2, 7, DType::float64}, settings));
        const ShardedMesh mesh =
            shard_mesh(step, {{"tensor", 0, size}}, [&](const Graph& graph, const AxisPlace& place) {
                return default_assignment(graph, place, {sequence_parallel, {}});
            });
        EXPECT_EQ(differences(step, mesh), std::vector<std::string>{});
    }
};

TEST_P(Families, OnTwoRanks) {
    const nlohmann::json settings = {{"num_attention_heads", 6}, {"num_key_value_heads", 3}, {"head_dim", 8},
                                     {"hidden_size", 48},        {"num_hidden_layers", 2},   {"n_layer", 2},
                                     {"vocab_size", 61}};
    for (bool sequence_parallel : {false, true}) expect_same(2, sequence_parallel, settings);
}

TEST_P(Families, OnThreeRanksWithDropout) {
    nlohmann::json settings = {{"num_attention_heads", 4}, {"num_key_value_heads", 4}, {"head_dim", 16},
                               {"hidden_size", 64},        {"num_hidden_layers", 1},   {"n_layer", 1}};
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout_prob", "dropout",
                            "attention_probs_dropout_prob", "attention_dropout", "hidden_dropout"})
        settings[key] = 0.2;
    for (bool sequence_parallel : {false, true}) expect_same(3, sequence_parallel, settings);
}

TEST_P(Families, OnFourRanks) {
    const nlohmann::json settings = {
        {"num_attention_heads", 6}, {"num_key_value_heads", 6}, {"head_dim", 8}, {"n_head", 6},     {"n_embd", 48},
        {"hidden_size", 48},        {"num_hidden_layers", 1},   {"n_layer", 1},  {"vocab_size", 59}};
    for (bool sequence_parallel : {false, true}) expect_same(4, sequence_parallel, settings);
}

// A rank finds from the forward pass alone in which states the stages before its own send things on.
TEST_P(Families, ForwardPassesDoNotDependOnTheBackward) {
    const Model model =
        build(GetParam(), {2, 8, DType::float32},
              {{"num_key_value_heads", 4}, {"num_attention_heads", 4}, {"head_dim", 16}, {"hidden_size", 64}});
    const Graph forward = eliminate_dead_code(eliminate_common_subexpressions(model.graph)), step = step_graph(model);
    for (bool sequence_parallel : {false, true}) {
        const AxisPlace place{"tensor", 0, 2};
        const ShardOptions options{sequence_parallel, {}};
        std::vector<Strategy> found = default_assignment(step, place, options).nodes;
        found.resize(forward.nodes().size());
        EXPECT_EQ(found, default_assignment(forward, place, options).nodes);
    }
}

// The other passes come after sharding.
TEST(Fusion, OfShardedGraphsKeepsTheNumbers) {
    for (const char* family : {"gpt2", "llama"}) {
        SCOPED_TRACE(family);
        const Graph step =
            step_graph(build(family, {2, 7, DType::float64}, {{"num_hidden_layers", 2}, {"n_layer", 2}}));
        ShardedMesh mesh = shard_mesh(step, {{"tensor", 0, 2}}, [&](const Graph& graph, const AxisPlace& place) {
            return default_assignment(graph, place, {true, {}});
        });
        for (ShardedRank& rank : mesh.ranks) rank.graph = materialise(fuse(rank.graph, {}));
        EXPECT_EQ(differences(step, mesh), std::vector<std::string>{});
    }
}

INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(families()), [](const auto& one) {
    std::string name = one.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

} // namespace
} // namespace tutti::testing

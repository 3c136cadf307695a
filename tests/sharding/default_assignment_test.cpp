// What the default assignment decides: as many collectives as Megatron's, and no more; who holds what; the borders of
// pipeline stages.
#include "graph/merge.h"
#include "graph/text.h"
#include "ops/operators.h"
#include "sharding/compare.h"
#include "sharding/families.h"

#include <gtest/gtest.h>

namespace tutti::testing {

using namespace ops;
using namespace sharding;
namespace {

using Counts = std::map<std::string, int>;

Sharded sharded(const Graph& step, int rank, int size, bool sequence_parallel) {
    const AxisPlace place{"tensor", rank, size};
    return shard(step, place, default_assignment(step, place, {sequence_parallel, {}}));
}

Counts collectives(const Graph& graph, bool backward) {
    Counts counts;
    for (const Node& node : graph.nodes())
        if (node.op->collective && (node.phase == Phase::backward) == backward) ++counts[std::string(node.op->name)];
    return counts;
}

// Of a layer: what three have more than one, by two.
Counts collectives_of_layer(const std::string& family, bool sequence_parallel, bool backward) {
    Counts counts[2];
    for (int i : {0, 1}) {
        const nlohmann::json settings = {{"num_hidden_layers", 1 + 2 * i}, {"n_layer", 1 + 2 * i}};
        const Graph step = step_graph(build(family, {2, 8, DType::float32}, settings));
        counts[i] = collectives(sharded(step, 0, 2, sequence_parallel).graph, backward);
    }
    Counts more;
    for (const auto& [name, count] : counts[1])
        if (count != counts[0][name]) more[name] = (count - counts[0][name]) / 2;
    return more;
}

TEST(DefaultAssignment, ReducesTwiceForwardAndTwiceBackwardPerLayer) {
    for (const char* family : {"gpt2", "llama", "qwen3", "gemma", "opt", "gpt_neox-sequential", "bert", "roberta"}) {
        SCOPED_TRACE(family);
        EXPECT_EQ(collectives_of_layer(family, false, false), (Counts{{"all_reduce", 2}}));
        EXPECT_EQ(collectives_of_layer(family, false, true), (Counts{{"all_reduce", 2}}));
    }
}

// The inputs of matmuls by columns are gathered again for the gradients of their weights, instead of being kept.
TEST(DefaultAssignment, GathersAndScattersTwicePerLayerWhereTheSequenceIsSplit) {
    for (const char* family : {"gpt2", "llama", "qwen3", "gemma", "opt", "gpt_neox-sequential", "bert", "roberta"}) {
        SCOPED_TRACE(family);
        EXPECT_EQ(collectives_of_layer(family, true, false), (Counts{{"all_gather", 2}, {"reduce_scatter", 2}}));
        EXPECT_EQ(collectives_of_layer(family, true, true), (Counts{{"all_gather", 4}, {"reduce_scatter", 2}}));
    }
}

// Attention and feed-forward side by side: their partial sums are added before they are reduced.
TEST(DefaultAssignment, ReducesOnceWhereTwoHalvesOfALayerAreAdded) {
    EXPECT_EQ(collectives_of_layer("phi", false, false), (Counts{{"all_reduce", 1}}));
    EXPECT_EQ(collectives_of_layer("phi", false, true), (Counts{{"all_reduce", 1}}));
    EXPECT_EQ(collectives_of_layer("gpt_neox", false, false), (Counts{{"all_reduce", 1}}));
}

// Beside the layers: the embedding's partial sums, the statistics of the loss, the gradient of the head's input.
TEST(DefaultAssignment, EmbeddingAndHeadCostOneReductionEach) {
    const Graph step = step_graph(build("gpt2", {2, 8, DType::float32}, {{"n_layer", 1}}));
    const Graph whole = sharded(step, 0, 2, false).graph;
    EXPECT_EQ(collectives(whole, false), (Counts{{"all_gather", 1}, {"all_reduce", 3}}));
    EXPECT_EQ(collectives(whole, true), (Counts{{"all_reduce", 3}}));
}

const TensorSlice& slice_of(const Sharded& sharded, const std::string& name) {
    const auto stored = sharded.graph.stored();
    const auto found = std::ranges::find(stored, name, &StoredTensor::name);
    TUTTI_CHECK(found != stored.end(), "no tensor {}", name);
    return sharded.stored[static_cast<std::size_t>(found - stored.begin())];
}

bool is_partial(const Sharded& sharded, const std::string& name) {
    const auto stored = sharded.graph.stored();
    return sharded
        .partial[static_cast<std::size_t>(std::ranges::find(stored, name, &StoredTensor::name) - stored.begin())];
}

// [q | k | v] with 4 heads of 16 over 3 ranks: 2, 1, 1.
TEST(DefaultAssignment, AFusedProjectionIsSplitByHeadsOfEachOfItsThirds) {
    const Graph step = step_graph(build("gpt2", {2, 8, DType::float32}));
    const std::string attention = "transformer.h.0.attn.";
    const Sharded first = sharded(step, 0, 3, false), last = sharded(step, 2, 3, false);
    EXPECT_EQ(slice_of(first, attention + "c_attn.weight").dims,
              (std::vector<Ranges>{{{0, 64}}, {{0, 32}, {64, 96}, {128, 160}}}));
    EXPECT_EQ(slice_of(last, attention + "c_attn.weight").dims,
              (std::vector<Ranges>{{{0, 64}}, {{48, 64}, {112, 128}, {176, 192}}}));
    EXPECT_EQ(slice_of(last, attention + "c_attn.bias").dims,
              (std::vector<Ranges>{{{48, 64}, {112, 128}, {176, 192}}}));
    EXPECT_EQ(slice_of(last, attention + "c_proj.weight").dims, (std::vector<Ranges>{{{48, 64}}, {{0, 64}}}));
    EXPECT_TRUE(slice_of(last, attention + "c_proj.bias").is_whole());
}

// Heads lie one behind the other, each with its query, key and value.
TEST(DefaultAssignment, AnInterleavedProjectionIsSplitByHeads) {
    const Sharded last = sharded(step_graph(build("gpt_neox", {2, 8, DType::float32})), 1, 2, false);
    EXPECT_EQ(slice_of(last, "gpt_neox.layers.1.attention.query_key_value.weight").dims,
              (std::vector<Ranges>{{{96, 144}}, {{0, 48}}}));
}

TEST(DefaultAssignment, TheVocabularyIsSplitUnevenlyWhereItMustBe) {
    const Sharded second = sharded(step_graph(build("gpt2-variant", {2, 8, DType::float32})), 1, 2, false);
    EXPECT_EQ(slice_of(second, "transformer.wte.weight").dims, (std::vector<Ranges>{{{66, 131}}, {{0, 48}}}));
    EXPECT_EQ(slice_of(second, "lm_head.weight").dims, (std::vector<Ranges>{{{66, 131}}, {{0, 48}}}));
    EXPECT_TRUE(slice_of(second, "transformer.wpe.weight").is_whole());
}

TEST(DefaultAssignment, GradientsOfWholeTensorsArePartialWhereTheSequenceIsSplit) {
    const Graph step = step_graph(build("gpt2", {2, 8, DType::float32}));
    for (const char* name : {"transformer.ln_f.weight", "transformer.h.0.attn.c_proj.bias", "transformer.wpe.weight"}) {
        EXPECT_FALSE(is_partial(sharded(step, 0, 2, false), name)) << name;
        EXPECT_TRUE(is_partial(sharded(step, 0, 2, true), name)) << name;
    }
    EXPECT_FALSE(is_partial(sharded(step, 0, 2, true), "transformer.wte.weight"));
}

// Of keys by heads every rank has a part of the rows that a norm's one weight scales.
TEST(DefaultAssignment, GradientsOfHeadNormsArePartial) {
    const Sharded first = sharded(step_graph(build("qwen3", {2, 8, DType::float32})), 0, 2, false);
    EXPECT_TRUE(is_partial(first, "model.layers.0.self_attn.k_norm.weight"));
}

TEST(DefaultAssignment, TooFewKeyHeadsAreToldWithTheLargestSize) {
    const Graph step = step_graph(build("llama", {2, 8, DType::float32}));
    try {
        default_assignment(step, {"tensor", 0, 4}, {});
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "model.layers.3.self_attn has 2 key heads, which cannot be sharded over 4 ranks; the "
                     "tensor axis can have at most 2");
    }
}

// A sequence shorter than the axis cannot be split along it; everything else goes on.
TEST(DefaultAssignment, AShortSequenceStaysWhole) {
    const Graph step = step_graph(build("gpt2", {2, 3, DType::float64}, {{"n_layer", 1}}));
    const ShardedMesh mesh = shard_mesh(step, {{"tensor", 0, 4}}, [&](const Graph& graph, const AxisPlace& place) {
        return default_assignment(graph, place, {true, {}});
    });
    EXPECT_EQ(collectives(mesh.ranks[0].graph, false), (Counts{{"all_gather", 1}, {"all_reduce", 3}}));
    EXPECT_EQ(differences(step, mesh), std::vector<std::string>{});
}

// One matrix for the gate and what it gates: every rank has its part of both.
TEST(DefaultAssignment, FusedGatesAreSplitAlike) {
    Graph graph(all_operators());
    const ValueId x = graph.add_input("stage_input/0", {DType::float32, {2, 3, 4}});
    const ValueId both = graph.add_parameter(graph.add_stored("gate_up", {DType::float32, {10, 4}}));
    const ValueId down = graph.add_parameter(graph.add_stored("down", {DType::float32, {4, 5}}));
    const NodeId halves = graph.add_node("split", {graph.add("linear", {x, both})},
                                         {{"dim", std::int64_t{2}}, {"sizes", std::vector<std::int64_t>{5, 5}}});
    const ValueId gate = graph.add("silu", {graph.node(halves).outputs[0]});
    const ValueId gated = graph.add("multiply", {gate, graph.node(halves).outputs[1]});
    graph.add_output({"stage_output/0", graph.add("linear", {gated, down}), ValueId::none});
    const Sharded first = sharded(graph, 0, 2, false);
    EXPECT_EQ(slice_of(first, "gate_up").dims, (std::vector<Ranges>{{{0, 3}, {5, 8}}, {{0, 4}}}));
    EXPECT_EQ(slice_of(first, "down").dims, (std::vector<Ranges>{{{0, 4}}, {{0, 3}}}));
    EXPECT_EQ(collectives(first.graph, false), (Counts{{"all_reduce", 1}}));
}

// Merged matmuls are runs of stored tensors, which sharding does not know; an axis of one rank leaves them alone.
TEST(DefaultAssignment, OneRankChangesNothing) {
    ValueId loss = ValueId::none;
    const Graph merged = merge_linears(build("llama", {2, 8, DType::float32}).graph, loss);
    const Sharded only = sharded(merged, 0, 1, true);
    EXPECT_EQ(to_text(only.graph), to_text(merged));
    EXPECT_TRUE(std::ranges::all_of(only.stored, &TensorSlice::is_whole));
}

// ---- Stages of a pipeline

// y = x + W2 gelu(W1 norm(x)) + b with its gradients, as a stage in the middle of a pipeline; the residual is left out
// where it is said so.
Graph middle_stage(bool residual) {
    const std::int64_t b = 2, s = 5, h = 6, n = 8;
    const DType dtype = DType::float64;
    Graph graph(all_operators());
    const ValueId x = graph.add_input("stage_input/0", {dtype, {b, s, h}});
    const ValueId dy = graph.add_input("stage_output_gradient/0", {dtype, {b, s, h}});
    auto parameter = [&](const char* name, Shape shape) {
        return graph.add_parameter(graph.add_stored(name, {dtype, shape}));
    };
    const ValueId scale = parameter("norm", {h}), up = parameter("up", {n, h}), down = parameter("down", {h, n}),
                  bias = parameter("bias", {h});
    const NodeId norm = graph.add_node("rms_norm", {x, scale}, {{"eps", 1e-5}});
    const ValueId normed = graph.node(norm).outputs[0], rstd = graph.node(norm).outputs[1];
    const ValueId wide = graph.add("linear", {normed, up});
    const ValueId active = graph.add("gelu", {wide});
    const ValueId fed = graph.add("linear", {active, down, bias});
    graph.add_output({"stage_output/0", residual ? graph.add("add", {x, fed}) : fed, ValueId::none});

    graph.begin(Phase::backward);
    auto contribute = [&](const char* name, ValueId value, ValueId to) { graph.add_output({name, value, to}); };
    contribute("bias", graph.add("bias_gradient", {dy}), bias);
    contribute("down", graph.add("linear_weight_gradient", {dy, active}), down);
    const ValueId d_wide = graph.add("gelu_gradient", {graph.add("linear_input_gradient", {dy, down}), wide});
    contribute("up", graph.add("linear_weight_gradient", {d_wide, normed}), up);
    const ValueId d_normed = graph.add("linear_input_gradient", {d_wide, up});
    contribute("norm", graph.add("rms_norm_weight_gradient", {d_normed, x, rstd}), scale);
    const ValueId dx = graph.add("rms_norm_input_gradient", {d_normed, x, rstd, scale});
    graph.add_output({"stage_input_gradient/0", residual ? graph.add("add", {dx, dy}) : dx, ValueId::none});
    return graph;
}

void check_stage(bool residual, bool sequence_parallel, const Sharding& border) {
    const Graph stage = middle_stage(residual);
    const ShardOptions options{sequence_parallel, {{"stage_input/0", border}}};
    const ShardedMesh mesh = shard_mesh(stage, {{"tensor", 0, 2}}, [&](const Graph& graph, const AxisPlace& place) {
        return default_assignment(graph, place, options);
    });
    EXPECT_EQ(differences(stage, mesh), std::vector<std::string>{});
    for (std::size_t r = 0; r < mesh.ranks.size(); ++r) {
        const ShardedRank& rank = mesh.ranks[r];
        EXPECT_EQ(rank.inputs[0], (std::vector<Sharding>{border, border})); // what comes forward and what comes back
        EXPECT_EQ(rank.outputs[0].front(), border);
        EXPECT_EQ(rank.outputs[0].back(), border);
        EXPECT_EQ(rank.graph.shape(rank.graph.inputs()[0]), local_shape({2, 5, 6}, border, static_cast<int>(r)));
    }
}

TEST(Stages, BordersKeepTheirStates) {
    for (bool residual : {false, true}) {
        SCOPED_TRACE(residual);
        check_stage(residual, false, {});
        check_stage(residual, true, Sharding::split(1, even_parts(5, 1, 2)));
    }
}

// What a stage sends on is reduced in its forward pass, though nobody else there needs it.
TEST(Stages, ReduceWhatTheySendInTheForwardPass) {
    const AxisPlace place{"tensor", 0, 2};
    const Graph stage = middle_stage(false);
    const Graph graph = shard(stage, place, default_assignment(stage, place, {})).graph;
    EXPECT_EQ(collectives(graph, false), (Counts{{"all_reduce", 1}}));
    EXPECT_EQ(collectives(graph, true), (Counts{{"all_reduce", 1}}));
}

} // namespace
} // namespace tutti::testing

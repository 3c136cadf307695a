// What a rank holds under one choice and another, read off its program; and the names of operators in stages.
#include "compile/graphs/stages.h"
#include "compile/memory_use.h"
#include "graph/passes.h"
#include "models/model.h"
#include "schedule/families.h"
#include "sharding/styles.h"

#include <gtest/gtest.h>

namespace tutti::testing {

using namespace compile;
using namespace models;
using namespace sharding;
namespace {

Model model_of(const std::string& name) { return open_model(name).build({4, 64, DType::float32}); }

Plan plan_for(const Model& model, int tensor, const std::optional<OperatorStrategies>& strategies,
              bool sequence_parallel) {
    Plan plan;
    plan.model = model.architecture;
    plan.workload = {64, 4, 4};
    plan.mesh.tensor = tensor;
    plan.sequence_parallel = sequence_parallel;
    plan.strategies = strategies;
    return plan;
}

MemoryUse use(const Model& model, int tensor, const std::optional<OperatorStrategies>& strategies,
              bool sequence_parallel = true) {
    return memory_use_of(model.graph, plan_for(model, tensor, strategies, sequence_parallel), 0);
}

TEST(MemoryUse, OfSpreadWeightsIsAShare) {
    const Model model = model_of("gpt2-tiny");
    const MemoryUse alone = use(model, 1, std::nullopt);
    std::int64_t elements = 0;
    for (const StoredTensor& stored : model.graph.stored()) elements += stored.type.elements();
    EXPECT_EQ(alone.stages[0].parameters, elements);
    for (int ranks : {2, 4}) {
        const MemoryUse sharded = use(model, ranks, choose(model.graph, by_batch(ranks)));
        EXPECT_NEAR(static_cast<double>(sharded.stages[0].parameters), static_cast<double>(elements) / ranks,
                    0.001 * static_cast<double>(elements));
        // Samples are independent of each other, so that is what they leave, too. Logits are not fused away.
        EXPECT_LE(sharded.stages[0].stash.count, alone.stages[0].stash.count / ranks * 2);
        EXPECT_LT(sharded.total().count, use(model, ranks, std::nullopt, false).total().count);
    }
}

TEST(MemoryUse, OfKeptGathersIsMore) {
    const Model model = model_of("gpt2-tiny");
    const Bytes again = use(model, 2, choose(model.graph, by_columns(2, false, false))).stages[0].stash,
                kept = use(model, 2, choose(model.graph, by_columns(2, true, false))).stages[0].stash;
    std::int64_t layers = 0;
    for (const Node& node : model.graph.nodes()) layers += node.op->name == "attention";
    const std::int64_t width = model.graph.stored()[0].type.shape[1], stream = 4 * 64 * width * 4;
    // Beside its half of each norm's result a rank keeps all of it: two in a layer, and the last.
    EXPECT_EQ(kept.count - again.count, (2 * layers + 1) * stream / 2);
}

TEST(Stages, GoOnCountingTheOperatorsOfALayer) {
    const Model model = model_of("gpt2-tiny");
    const std::vector<Block> blocks = find_blocks(model.graph);
    const Graph whole = eliminate_dead_code(eliminate_common_subexpressions(stage_graph(model.graph, blocks, {}, 0)));
    const std::vector<int> cuts = {2}; // between attention and feed-forward network of the first layer
    const Graph stage = stage_graph(model.graph, blocks, cuts, 1);
    const std::vector<OperatorName> names = operator_names(stage, &whole);
    const OperatorName sum{"transformer.h.0", "add", 1};
    EXPECT_EQ(std::ranges::count(names, sum), 1);
    EXPECT_EQ(std::ranges::count(operator_names(stage), sum), 0);
}

} // namespace
} // namespace tutti::testing

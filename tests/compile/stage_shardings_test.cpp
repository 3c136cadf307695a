// Stages that use one tensor own the same of it, whichever of them wants it in which way.
#include "compile/graphs/stage_shardings.h"

#include "base/error.h"
#include "compile/compile.h"
#include "compile/graphs/rank_graphs.h"
#include "planner/stages/cuts.h"
#include "schedule/families.h"
#include "sharding/families.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti {

using namespace compile;
using namespace sharding;
namespace {

// Two ranks with two stages each, the first and the last on one of them.
Plan folded(const Graph& forward, int tensor) {
    Plan plan;
    plan.mesh = {.pipe = 2, .tensor = tensor};
    plan.workload = {16, 8, 2};
    const schedule::ScheduleParameters parameters =
        schedule::resolve({.family = "zb-v", .ranks = 2, .micro_batches = 4});
    const schedule::Costs costs = schedule::uniform_costs(parameters, {});
    plan.schedule = PlannedSchedule{schedule::make_schedule(parameters, costs), costs};
    plan.cuts = planner::balance(find_blocks(forward), 4);
    return plan;
}

// By name: what each stage of a place on the tensor axis owns of it, and whether its gradients are partial sums.
using Owned = std::map<std::string, std::vector<std::pair<TensorSlice, std::vector<bool>>>>;

Owned owned_of(const Graph& forward, const Plan& plan, int tensor_rank) {
    Owned owned;
    for (int pipe = 0; pipe < plan.mesh.pipe; ++pipe)
        for (const RankStage& stage : training_graphs(forward, plan, plan.mesh.rank_of({pipe, 0, tensor_rank})).stages)
            for (std::size_t s = 0; s < stage.graph.stored().size(); ++s) {
                std::vector<bool> partial;
                for (const std::vector<bool>& axis : stage.partial) partial.push_back(axis[s]);
                owned[stage.graph.stored()[s].name].emplace_back(stage.slice(s), partial);
            }
    return owned;
}

int tied_alike(const Graph& forward, const Plan& plan) {
    int tied = 0;
    for (int rank = 0; rank < plan.mesh.tensor; ++rank)
        for (const auto& [name, stages] : owned_of(forward, plan, rank)) {
            tied += stages.size() > 1 ? 1 : 0;
            for (const auto& stage : stages) EXPECT_EQ(stage, stages.front()) << name << ", place " << rank;
        }
    for (int rank = 0; rank < plan.mesh.ranks(); ++rank) compile::compile(forward, plan, rank);
    return tied;
}

class TiedTensors : public ::testing::TestWithParam<std::string> {};

TEST_P(TiedTensors, AreOwnedAlikeByAllStages) {
    const models::Model model = testing::build(GetParam(), {2, 16, DType::float32});
    for (const int tensor : {2, 3, 4}) {
        SCOPED_TRACE(tensor);
        EXPECT_EQ(tied_alike(model.graph, folded(model.graph, tensor)), tensor);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, TiedTensors, ::testing::Values("gpt2", "bert", "opt", "roberta", "opt-post"),
                         [](const auto& one) {
                             std::string name = one.param;
                             std::erase(name, '-');
                             return name;
                         });

// The embedding splits its rows: a head that splits its columns by itself takes rows, too.
TEST(TiedTensors, AreSplitAsTheFirstStageWantsIt) {
    const models::Model model = testing::build("opt-post", {2, 16, DType::float32});
    const Owned owned = owned_of(model.graph, folded(model.graph, 2), 1);
    EXPECT_EQ(owned.at("model.decoder.embed_tokens.weight")[1].first.dims,
              (std::vector<Ranges>{{{66, 131}}, {{0, 32}}}));
}

Plan with_strategies(const Graph& forward, const char* embedding, const char* head) {
    Plan plan = folded(forward, 2);
    plan.strategies = OperatorStrategies{.axes = {2},
                                         .operators = {{.name = {"transformer.wte", "embedding"}, .split = {embedding}},
                                                       {.name = {"lm_head", "linear"}, .split = {head}}}};
    return plan;
}

// Every rank looks all words up, so that the embedding's gradients are whole; the head's are sums over samples.
TEST(TiedTensors, HaveGradientsOfOneKindInAllStages) {
    const models::Model model = testing::build("gpt2", {2, 16, DType::float32});
    const Plan plan = with_strategies(model.graph, "none", "r0");
    EXPECT_EQ(tied_alike(model.graph, plan), 2);
    EXPECT_EQ(owned_of(model.graph, plan, 0).at("transformer.wte.weight")[0].second, std::vector<bool>{false});
    // Sums over samples in both stay so until the end of the step.
    const Plan alike = with_strategies(model.graph, "r0", "r0");
    EXPECT_EQ(tied_alike(model.graph, alike), 2);
    EXPECT_EQ(owned_of(model.graph, alike, 0).at("transformer.wte.weight")[0].second, std::vector<bool>{true});
}

// As in one stage: what an operator needs otherwise is gathered for it.
TEST(TiedTensors, MayBeUsedInOtherWaysThanTheyAreOwned) {
    const models::Model model = testing::build("gpt2", {2, 16, DType::float32});
    for (const char* head : {"r0", "k", "none"})
        EXPECT_EQ(tied_alike(model.graph, with_strategies(model.graph, "v", head)), 2) << head;
}

} // namespace
} // namespace tutti

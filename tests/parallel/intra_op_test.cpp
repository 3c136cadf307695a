// Plans that were searched for, not written by hand: every point of the Pareto list equals one process.
#include "run_ranks.h"

#include "base/file.h"
#include "compile/graphs/step_graph.h"
#include "costs/cluster.h"
#include "models/model.h"
#include "ops/operators.h"
#include "planner/pareto_strategies.h"
#include "planner/strategies/model.h"
#include "planner/strategies/stages.h"
#include "resolve/run_plan.h"
#include "support/searched.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace compile;
using namespace costs;
using namespace planner::strategies;
using namespace models;
using namespace ops;
using namespace planner;
using namespace resolve;
using namespace run;
using namespace train;
namespace {

int product(const std::vector<int>& axes) {
    int ranks = 1;
    for (int size : axes) ranks *= size;
    return ranks;
}

struct Case {
    std::string name, model;
    std::vector<int> axes;
    std::int64_t micro_batch;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

// The plan, by way of its file, on ranks of its own.
void expect_same_run(const Plan& plan, RunConfig config, const Recorder& expected, const TemporaryFolder& folder) {
    const std::string one = config.dump_step0;
    config.plan = (folder.path() / "plan.json").string();
    write_text_atomically(config.plan, to_json(plan));
    config = with_plan(config, read_plan(config.plan));
    config.dump_step0 = (folder.path() / "many.safetensors").string();
    const RanksResult result = train_on_ranks(config);
    for (const Recorder& rank : result.listeners) expect_same_training(expected, rank);
    expect_same_gradients(one, config.dump_step0);
}

class IntraOp : public ::testing::TestWithParam<Case> {};

TEST_P(IntraOp, EveryPlanOfTheListEqualsOneProcess) {
    const Case& one = GetParam();
    const TemporaryFolder folder;
    RunConfig config = small_run(one.model);
    config.steps = 2;
    config.dump_step0 = (folder.path() / "one.safetensors").string();
    Recorder expected;
    const std::atomic<bool> stop = false;
    train::train(config, expected, stop);

    const Model model = open_model(config.model).build({one.micro_batch, config.workload.sequence, DType::float32});
    const int ranks = product(one.axes);
    const Searched searched(differentiated(model.graph, false), one.axes, ranks);
    Plan plan;
    plan.model = model.architecture;
    plan.device = config.device;
    plan.workload = {config.workload.sequence, config.workload.global_batch, one.micro_batch};
    plan.mesh.tensor = ranks;
    plan.chunk_elements = 1 << 14;
    ASSERT_FALSE(searched.found.points.empty());
    for (const ParetoPoint& point : searched.found.points) {
        SCOPED_TRACE(fmt::format("epsilon {}", point.epsilon));
        plan.strategies = searched.model.operator_strategies(point.solution);
        RunConfig many = config;
        many.mesh = plan.mesh;
        many.workload.micro_batch = one.micro_batch;
        expect_same_run(plan, many, expected, folder);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, IntraOp,
                         ::testing::Values(Case{"Gpt2Four", "gpt2", {4}, 4}, Case{"Gpt2Eight", "gpt2", {8}, 8},
                                           Case{"LlamaFour", "llama", {4}, 4}, Case{"LlamaEight", "llama", {2, 4}, 4},
                                           Case{"Gpt2One", "gpt2", {4}, 1}, Case{"Gpt2TwoByFour", "gpt2", {2, 4}, 8}),
                         [](const auto& one) { return one.param.name; });

// As the joint planner finds and writes them: with stages, a schedule, recomputation and ZeRO.
TEST(IntraOpLists, PlansOfTheJointPlannerEqualOneProcess) {
    const TemporaryFolder folder;
    RunConfig config = small_run("gpt2");
    config.steps = 2;
    config.dump_step0 = (folder.path() / "one.safetensors").string();
    Recorder expected;
    const std::atomic<bool> stop = false;
    train::train(config, expected, stop);

    const Cluster cluster = fast_cluster(4);
    const RooflineCost costs(cluster, all_operators());
    const PlannerWorkload workload{
        .sequence = config.workload.sequence, .global_batch = config.workload.global_batch, .precision = {}};
    const BlockChain chain = chain_of(open_model(config.model), config.workload.sequence, DType::float32);
    PlanModel model(chain, costs, workload, {});
    const std::vector<TensorParallelism> list = pareto_strategies(model, 2, 2);
    ASSERT_FALSE(list.empty());
    for (const TensorParallelism& one : list)
        for (const bool pipeline : {false, true}) {
            PlanDecisions point{.tensor_parallel = one, .micro_batch = 2};
            (pipeline ? point.pipe : point.data) = 2;
            point.zero = pipeline ? 0 : 2;
            point.schedule = {.family = pipeline ? "zb-1p" : "1f1b", .ranks = point.pipe};
            point.schedule.micro_batches = static_cast<int>(model.micro_batches(point.data, 2));
            if (pipeline) point.cuts = {chain.blocks() / 2};
            point.recompute.resize(static_cast<std::size_t>(point.stages()));
            point.recompute.back() = {chain.blocks() - 2};
            point.layout = usual_layout(cluster, point.mesh());
            SCOPED_TRACE(describe(point));
            Plan plan = plan_of(model, point);
            ASSERT_TRUE(plan.strategies);
            plan.device = config.device;
            expect_same_run(plan, config, expected, folder);
        }
}

} // namespace
} // namespace tutti::test

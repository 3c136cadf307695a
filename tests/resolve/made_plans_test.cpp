// Plans drawn at random, of models, meshes, schedules and all that is set beside them: each is refused in a sentence,
// or all of its ranks have programs that fit together.
#include "base/error.h"
#include "compile/compile.h"
#include "graph/passes.h"
#include "program/collective_order.h"
#include "resolve/run_plan.h"
#include "run/layout.h"
#include "schedule/families.h"
#include "sharding/families.h"
#include "sharding/random_strategies.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace resolve;
using namespace run;
using testing::Random;
namespace {

template <typename T>
T one_of(Random& random, const std::vector<T>& some) {
    return some[static_cast<std::size_t>(random.below(std::ssize(some)))];
}

std::string drawn_family(Random& random) {
    const auto all = schedule::families();
    return std::string(all[static_cast<std::size_t>(random.below(std::ssize(all)))].name);
}

RunConfig drawn_run(Random& random) {
    RunConfig config;
    config.mesh = sharding::Mesh{.pipe = one_of<int>(random, {1, 2, 2, 3, 4}),
                                 .data = one_of<int>(random, {1, 1, 2, 3}),
                                 .tensor = one_of<int>(random, {1, 2, 2, 3, 4})};
    config.ranks = config.mesh->ranks();
    if (random.one_in(4) || config.mesh->pipe > 1) config.schedule = drawn_family(random);
    if (random.one_in(4)) config.stages_per_rank = static_cast<int>(1 + random.below(3));
    if (random.one_in(6)) config.in_flight = static_cast<int>(1 + random.below(6));
    if (random.one_in(8)) config.model_replicas = static_cast<int>(1 + random.below(3));
    config.zero = static_cast<int>(random.below(4));
    config.recompute = one_of<RecomputeAmount>(random, {{}, {.automatic = true}, {.share = 0.3}, {.share = 1}});
    config.sequence_parallel = random.one_in(2);
    config.sub_pipeline = random.one_in(4);
    config.split_backward = random.one_in(6);
    config.gradients_over_weights = random.one_in(2);
    if (random.one_in(3)) config.chunk_elements = 64 * (1 + random.below(100));
    if (random.one_in(4)) config.precision = {DType::bfloat16, DType::bfloat16, DType::float32, DType::float32};
    config.workload = {
        .sequence = one_of<std::int64_t>(random, {6, 8, 16}), .global_batch = 0, .micro_batch = 1 + random.below(4)};
    config.workload.global_batch =
        config.workload.micro_batch * config.mesh->data * one_of<std::int64_t>(random, {1, 2, 4, 8, 9});
    return config;
}

// What a run of this config compiles, on every rank. Error where it is refused.
void compile_all(const RunConfig& config, const std::string& family, Random& random) {
    const std::int64_t micro_batch = config.workload.micro_batch;
    const DType compute = config.precision.compute;
    const models::Model model = testing::build(family, {micro_batch, config.workload.sequence, compute});
    check_layout(config);
    Plan plan = make_plan(config, {config.workload.sequence, config.workload.global_batch}, model,
                          Bytes{std::int64_t{1} << (16 + random.below(10))});
    if (plan.mesh.tensor > 1 && random.one_in(3)) {
        const Graph forward = eliminate_dead_code(eliminate_common_subexpressions(model.graph));
        const std::vector<int> axes =
            plan.mesh.tensor == 4 && random.one_in(2) ? std::vector{2, 2} : std::vector{plan.mesh.tensor};
        plan.strategies = testing::random_choices(forward, axes, random);
        check(plan);
    }
    const models::Model half =
        plan.sub_pipeline ? testing::build(family, {micro_batch / 2, config.workload.sequence, compute}) : model;
    std::vector<std::string> orders;
    for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
        const compile::Compiled compiled = compile::compile(half.graph, plan, rank);
        orders.push_back(collective_orders(compiled.program));
        compile::compile_evaluation(remove_dropout(model.graph), plan, rank, compiled.ownership);
    }
    check_collective_orders(orders);
}

TEST(MadePlans, CompileOnAllRanksOrAreRefusedInASentence) {
    int made = 0;
    for (std::uint32_t seed = 0; seed < 100; ++seed) {
        Random random(seed);
        const std::string family = one_of(random, testing::families());
        const RunConfig config = drawn_run(random);
        SCOPED_TRACE(
            fmt::format("seed {}: {}, {}, {}", seed, family, sharding::to_string(*config.mesh), config.schedule));
        try {
            compile_all(config, family, random);
            ++made;
        } catch (const Error& error) { // what users are told
            EXPECT_GT(std::string(error.what()).size(), 10U);
        } catch (const std::exception& defect) {
            ADD_FAILURE() << defect.what();
        }
    }
    EXPECT_GT(made, 25);
}

} // namespace
} // namespace tutti::test

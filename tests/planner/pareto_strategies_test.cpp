// Intra-operator lists in the joint search.
#include "planner/pareto_strategies.h"

#include "setting.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace planner;
namespace {

bool recomputes(const PlanDecisions& decisions) {
    return std::ranges::any_of(decisions.recompute, [](const auto& blocks) { return !blocks.empty(); });
}

// Whatever a schedule asks of an entry can be compiled: weights that are sharded over replicas as well as over the
// tensor group, backwards in two parts, recomputation.
TEST(ParetoStrategies, EntriesCompileForEverySchedule) {
    for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
        Setting setting(small_cluster(1, 4, 1), small_model(name, 1), 16);
        const std::vector<TensorParallelism> list = pareto_strategies(setting.model, 2, 2);
        ASSERT_FALSE(list.empty()) << name;
        for (const TensorParallelism& one : list) {
            EXPECT_EQ(setting.model.segments().strategies(one.strategies).axes, std::vector{2});
            for (const BackwardStyle style : {BackwardStyle::whole, BackwardStyle::split, BackwardStyle::early})
                for (const int zero : {0, 3})
                    for (const bool again : {false, true}) {
                        const SegmentKey key{.tensor_parallel = one,
                                             .micro_batch = 2,
                                             .style = style,
                                             .zero = zero,
                                             .recomputed = again};
                        const ChainFigures& figures = setting.model.segments().figures(key, {{{2}}, {{2}}}, 0);
                        EXPECT_GT(figures.stage(0, setting.chain.blocks()).elements, 0);
                    }
        }
    }
}

// Every entry of every list, searched by itself: the lists that the joint search looks at are the ones that matter.
TEST(ParetoStrategies, NoEntryIsFasterThanWhatTheSearchTook) {
    for (const double gigabytes : {1.0, 0.005})
        for (const std::int64_t batch : {1, 4}) {
            SCOPED_TRACE(fmt::format("{} GB, {} sequences", gigabytes, batch));
            Setting setting(small_cluster(1, 4, gigabytes), 2, batch);
            const JointResult result = plan_jointly(setting.model, {.offload = false});
            ASSERT_TRUE(result.fits());
            int entries = 0;
            for (const int tensor : {2, 4})
                for (std::int64_t b = 1; b <= batch; b *= 2)
                    for (const TensorParallelism& one : pareto_strategies(setting.model, tensor, b)) {
                        const SearchResult alone = search(setting.model, {.space = {.tensor_parallel = {{one, b}}}});
                        if (alone.best.empty()) continue;
                        EXPECT_GE(alone.best.front().cost.time, result.best().cost.time * (1 - 1e-9))
                            << describe(alone.best.front().decisions) << " against "
                            << describe(result.best().decisions);
                        ++entries;
                    }
            EXPECT_GT(entries, 0);
        }
}

// One sample a step: only a tensor group can share the work.
TEST(ParetoStrategies, IsFasterWhereATensorGroupIsNeeded) {
    Setting setting(small_cluster(1, 4, 1), 4, 1);
    const JointResult without = plan_jointly(setting.model, {.intra_operator = false, .offload = false});
    const JointResult with = plan_jointly(setting.model, {.offload = false});
    ASSERT_TRUE(without.fits());
    ASSERT_TRUE(with.fits());
    EXPECT_GT(with.best().decisions.tensor_parallel.strategies, 0) << describe(with.best().decisions);
    EXPECT_LT(with.best().cost.time, 0.985 * without.best().cost.time) << describe(without.best().decisions);
    const Plan plan = plan_of(setting.model, with.best().decisions);
    ASSERT_TRUE(plan.strategies);
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
}

// Memory that Megatron's way fills: it has to recompute, where strategies with less redundancy need not.
TEST(ParetoStrategies, SparesRecomputation) {
    Setting setting(small_cluster(1, 4, 0.005), 4, 1);
    const JointResult without = plan_jointly(setting.model, {.intra_operator = false, .offload = false});
    const JointResult with = plan_jointly(setting.model, {.offload = false});
    ASSERT_TRUE(without.fits());
    ASSERT_TRUE(with.fits());
    EXPECT_TRUE(recomputes(without.best().decisions)) << describe(without.best().decisions);
    EXPECT_FALSE(recomputes(with.best().decisions)) << describe(with.best().decisions);
    EXPECT_LT(with.best().cost.time, 0.95 * without.best().cost.time);
}

TEST(ParetoStrategies, FitsWhereNothingElseDoes) {
    Setting setting(small_cluster(1, 4, 0.0045), 4, 1);
    EXPECT_FALSE(plan_jointly(setting.model, {.intra_operator = false, .offload = false}).fits());
    const JointResult with = plan_jointly(setting.model, {.offload = false});
    ASSERT_TRUE(with.fits());
    EXPECT_GT(with.best().decisions.tensor_parallel.strategies, 0) << describe(with.best().decisions);
}

} // namespace
} // namespace tutti

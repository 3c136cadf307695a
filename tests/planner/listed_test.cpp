// Intra-operator lists in the joint search.
#include "planner/listed.h"

#include "setting.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace planner;
namespace {

bool recomputes(const PlanPoint& point) {
    return std::ranges::any_of(point.recompute, [](const auto& blocks) { return !blocks.empty(); });
}

// Whatever a schedule asks of an entry can be compiled: weights that are spread over replicas as well as over the
// tensor group, backwards in two parts, recomputation.
TEST(Listed, EntriesCompileForEverySchedule) {
    for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
        Setting setting(small_cluster(1, 4, 1), small_model(name, 1), 16);
        const std::vector<Strategies> list = listed_strategies(setting.model, 2, 2);
        ASSERT_FALSE(list.empty()) << name;
        for (const Strategies& one : list) {
            EXPECT_EQ(setting.model.segments().listed(one.listed).axes, std::vector{2});
            for (const BackwardStyle style : {BackwardStyle::whole, BackwardStyle::split, BackwardStyle::early})
                for (const int zero : {0, 3})
                    for (const bool again : {false, true}) {
                        const SegmentKey key{
                            .strategies = one, .micro_batch = 2, .style = style, .zero = zero, .recomputed = again};
                        const ChainFigures& figures = setting.model.segments().figures(key, {{{2}}, {{2}}}, 0);
                        EXPECT_GT(figures.stage(0, setting.chain.blocks()).elements, 0);
                    }
        }
    }
}

// Every entry of every list, searched by itself: the lists that the joint search looks at are the ones that matter.
TEST(Listed, NoEntryIsFasterThanWhatTheSearchTook) {
    for (const double gigabytes : {1.0, 0.005})
        for (const std::int64_t batch : {1, 4}) {
            SCOPED_TRACE(fmt::format("{} GB, {} sequences", gigabytes, batch));
            Setting setting(small_cluster(1, 4, gigabytes), 2, batch);
            const JointResult result = plan_jointly(setting.model, {.offload = false});
            ASSERT_TRUE(result.fits());
            int entries = 0;
            for (const int tensor : {2, 4})
                for (std::int64_t b = 1; b <= batch; b *= 2)
                    for (const Strategies& one : listed_strategies(setting.model, tensor, b)) {
                        const SearchResult alone = search(setting.model, {.freedom = {.listed = {{one, b}}}});
                        if (alone.best.empty()) continue;
                        EXPECT_GE(alone.best.front().cost.time, result.best().cost.time * (1 - 1e-9))
                            << describe(alone.best.front().point) << " against " << describe(result.best().point);
                        ++entries;
                    }
            EXPECT_GT(entries, 0);
        }
}

// One sample a step: only a tensor group can share the work.
TEST(Listed, IsFasterWhereATensorGroupIsNeeded) {
    Setting setting(small_cluster(1, 4, 1), 4, 1);
    const JointResult without = plan_jointly(setting.model, {.listed = false, .offload = false});
    const JointResult with = plan_jointly(setting.model, {.offload = false});
    ASSERT_TRUE(without.fits());
    ASSERT_TRUE(with.fits());
    EXPECT_GT(with.best().point.strategies.listed, 0) << describe(with.best().point);
    EXPECT_LT(with.best().cost.time, 0.985 * without.best().cost.time) << describe(without.best().point);
    const Plan plan = plan_of(setting.model, with.best().point);
    ASSERT_TRUE(plan.strategies);
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
}

// Memory that Megatron's way fills: it has to recompute, where strategies with less redundancy need not.
TEST(Listed, SparesRecomputation) {
    Setting setting(small_cluster(1, 4, 0.005), 4, 1);
    const JointResult without = plan_jointly(setting.model, {.listed = false, .offload = false});
    const JointResult with = plan_jointly(setting.model, {.offload = false});
    ASSERT_TRUE(without.fits());
    ASSERT_TRUE(with.fits());
    EXPECT_TRUE(recomputes(without.best().point)) << describe(without.best().point);
    EXPECT_FALSE(recomputes(with.best().point)) << describe(with.best().point);
    EXPECT_LT(with.best().cost.time, 0.95 * without.best().cost.time);
}

TEST(Listed, FitsWhereNothingElseDoes) {
    Setting setting(small_cluster(1, 4, 0.0045), 4, 1);
    EXPECT_FALSE(plan_jointly(setting.model, {.listed = false, .offload = false}).fits());
    const JointResult with = plan_jointly(setting.model, {.offload = false});
    ASSERT_TRUE(with.fits());
    EXPECT_GT(with.best().point.strategies.listed, 0) << describe(with.best().point);
}

} // namespace
} // namespace tutti

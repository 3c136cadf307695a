// Splitting by itself: cuts and recomputation against every cut and every set of blocks.
#include "planner/evaluate/splitting.h"

#include "exhaustive.h"
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <limits>

namespace tutti {

using namespace planner;
namespace {

constexpr int layers = 3;
constexpr std::int64_t sequences = 8;

// A pipeline of two ranks with one device each.
struct Pipeline {
    Setting setting;
    PlanDecisions decisions{.pipe = 2};
    PlacedRanks placed;
    ReadySchedule* ready = nullptr;

    Pipeline(costs::Cluster cluster, const char* family, PlannerOptions options = {})
        : setting(std::move(cluster), layers, sequences),
          model(setting.chain, setting.costs, setting.workload,
                {.kept_free_share = 0, .kept_free = {0}, .recompute = options.recompute}) {
        decisions.layout = usual_layout(setting.cluster, decisions.mesh());
        placed = place_ranks(setting.cluster, decisions.mesh(), decisions.layout);
        ready = model.schedules().find({.family = family, .ranks = 2, .micro_batches = static_cast<int>(sequences)});
        decisions.schedule = ready->schedule.parameters;
        decisions.schedule.recompute.clear();
    }
    // So much memory on the first device, and plenty on the other.
    Pipeline(double gigabytes, const char* family, PlannerOptions options = {})
        : Pipeline(with_first_device(gigabytes), family, options) {}

    static costs::Cluster with_first_device(double gigabytes) {
        costs::Cluster cluster = small_cluster(2, 1, gigabytes);
        cluster.kinds.push_back(node_of(1, 1));
        cluster.nodes = {0, 1};
        return cluster;
    }

    int blocks() const { return setting.chain.blocks(); }
    RankBytes memory(const PlanDecisions& decided, int rank) {
        return model.memory_of(decided, placed, *ready, style_of(decided.schedule), rank);
    }
    double slowest(const PlanDecisions& decided) {
        double most = 0;
        for (const schedule::StageCosts& stage : model.costs_of(decided, placed, style_of(decided.schedule)).stages)
            most = std::max(most, stage.forward + stage.backward + stage.weight_gradient + stage.recompute);
        return most;
    }
    PlanDecisions with(const std::vector<int>& cuts, std::vector<std::vector<int>> recompute) const {
        PlanDecisions decided = decisions;
        decided.cuts = cuts;
        decided.recompute = std::move(recompute);
        return decided;
    }

    PlanModel model;
};

std::vector<int> range(int first, int end) {
    std::vector<int> numbers;
    for (int i = first; i < end; ++i) numbers.push_back(i);
    return numbers;
}

// Memory that holds so much of what recomputation could free on rank 0.
double gigabytes_for(const char* family, const std::vector<int>& cuts, double share) {
    Pipeline roomy(1, family);
    const double none = roomy.memory(roomy.with(cuts, {{}, {}}), 0).total();
    const double all = roomy.memory(roomy.with(cuts, {range(0, cuts[0]), range(cuts[0], roomy.blocks())}), 0).total();
    EXPECT_LT(all, none);
    return (all + share * (none - all)) / 1e9;
}

// Every set of a rank's blocks, measured as the splitter measures its own.
TEST(Splitting, RecomputesNoMoreWorkThanAnySetThatFits) {
    int partly = 0;
    for (const char* family : {"1f1b", "zb-1p", "early-recompute"})
        for (const double share : {0.25, 0.5, 0.75, 0.9}) {
            SCOPED_TRACE(fmt::format("{}, {} of what may be freed", family, share));
            const std::vector<int> cuts = {4};
            Pipeline tight(gigabytes_for(family, cuts, share), family);
            Splitter splitter(tight.model, tight.decisions, tight.placed, *tight.ready);
            ASSERT_TRUE(splitter.complete(cuts));
            auto work = [&](const std::vector<int>& blocks) {
                const schedule::ScheduleParameters& made = tight.ready->schedule.parameters;
                return tight.model
                    .stage_cost(tight.decisions, tight.placed, style_in(made, 0, style_of(made)), 0, 0, cuts[0], blocks)
                    .times.recompute;
            };
            double least = std::numeric_limits<double>::infinity();
            for (unsigned set = 0; set < 1U << cuts[0]; ++set) {
                std::vector<int> blocks;
                for (int b = 0; b < cuts[0]; ++b)
                    if ((set >> b & 1U) != 0) blocks.push_back(b);
                if (tight.memory(tight.with(cuts, {blocks, {}}), 0).margin() >= 0)
                    least = std::min(least, work(blocks));
            }
            const std::vector<int>& chosen = splitter.decisions().recompute[0];
            EXPECT_GE(tight.memory(splitter.decisions(), 0).margin(), 0);
            EXPECT_LE(work(chosen), least * (1 + 1e-9));
            EXPECT_TRUE(splitter.decisions().recompute[1].empty());
            partly += !chosen.empty() && static_cast<int>(chosen.size()) < cuts[0] ? 1 : 0;
        }
    EXPECT_GT(partly, 4);
}

TEST(Splitting, BalancedCutsHaveTheFastestSlowestStage) {
    Pipeline pipeline(1, "1f1b");
    const Splitter splitter(pipeline.model, pipeline.decisions, pipeline.placed, *pipeline.ready);
    double best = std::numeric_limits<double>::infinity();
    for (int cut = 1; cut < pipeline.blocks(); ++cut)
        best = std::min(best, pipeline.slowest(pipeline.with({cut}, {{}, {}})));
    const std::vector<Cuts> found = splitter.balanced();
    ASSERT_FALSE(found.empty());
    // The first micro-batch's share of a step, which overwrites gradients, is not part of the splitter's times.
    for (const Cuts& cuts : found) EXPECT_LE(pipeline.slowest(pipeline.with(cuts, {{}, {}})), 1.02 * best);
}

// The slow device would be the bottleneck of equal stages.
TEST(Splitting, SlowerDevicesHaveFewerBlocks) {
    costs::Cluster cluster = small_cluster(2, 1, 1);
    cluster.kinds.push_back(node_of(1, 1, 3));
    cluster.nodes = {0, 1};
    Pipeline pipeline(cluster, "1f1b");
    const Splitter splitter(pipeline.model, pipeline.decisions, pipeline.placed, *pipeline.ready);
    for (const Cuts& cuts : splitter.balanced()) EXPECT_LT(cuts[0], splitter.even()[0]);
}

// Of 1F1B the first stage keeps two micro-batches, each what its blocks keep, though one block of it is recomputed.
TEST(Splitting, TheScheduleOfAPlanKeepsWhatItsMemoryCounts) {
    const std::vector<int> cuts = {3};
    Pipeline plenty(80, "1f1b");
    for (const auto& recomputed : std::vector<std::vector<std::vector<int>>>{{{}, {}}, {{1}, {4}}, {{0, 1, 2}, {}}}) {
        const PlanDecisions decided = plenty.with(cuts, recomputed);
        const schedule::Costs costs = plenty.model.costs_of(decided, plenty.placed, BackwardStyle::whole);
        const schedule::Schedule made = schedule::make_schedule(decided.schedule, costs);
        const schedule::Evaluation held = schedule::evaluate(made, costs);
        const StageFigures first =
            plenty.model
                .stage_cost(decided, plenty.placed, BackwardStyle::whole, 0, 0, cuts[0], decided.recomputed_in(0))
                .figures;
        EXPECT_NEAR(held.ranks[0].peak_activations, 2 * first.slot(Region::stash), 4) << recomputed[0].size();
    }
}

// In bidirectional schedules a rank has a stage of each model replica, and shares them with another rank.
TEST(Splitting, EveryRankOfABidirectionalScheduleFits) {
    const std::vector<int> cuts = {4};
    int fitting = 0;
    for (const double share : {0.2, 0.5, 0.8}) {
        Pipeline tight(gigabytes_for("dualpipe", cuts, share), "dualpipe");
        Splitter splitter(tight.model, tight.decisions, tight.placed, *tight.ready);
        if (!splitter.complete(cuts)) continue;
        ++fitting;
        for (int rank = 0; rank < 2; ++rank) EXPECT_GE(tight.memory(splitter.decisions(), rank).margin(), 0);
        for (const std::vector<int>& stage : splitter.decisions().recompute)
            EXPECT_EQ(std::ranges::adjacent_find(stage, std::ranges::greater_equal{}), stage.end()); // each block once
    }
    EXPECT_GT(fitting, 0);
}

TEST(Splitting, KeepsToWhatAPersonSaysOfRecomputation) {
    const std::vector<int> cuts = {4};
    const double gigabytes = gigabytes_for("1f1b", cuts, 0.5);
    Pipeline never(gigabytes, "1f1b", {.recompute = Recomputing::none});
    Splitter keeping(never.model, never.decisions, never.placed, *never.ready);
    EXPECT_FALSE(keeping.complete(cuts));
    EXPECT_FALSE(keeping.recomputes());
    Pipeline always(1, "1f1b", {.recompute = Recomputing::all});
    Splitter all(always.model, always.decisions, always.placed, *always.ready);
    EXPECT_TRUE(all.complete(cuts));
    // Every other block could be taken out only at the price of memory.
    for (int stage = 0; stage < 2; ++stage) {
        const double with_all = always.memory(all.decisions(), stage).total();
        for (const int block : all.decisions().recomputed_in(stage)) {
            PlanDecisions without = all.decisions();
            std::erase(without.recompute[static_cast<std::size_t>(stage)], block);
            EXPECT_GE(always.memory(without, stage).total(), with_all) << block;
        }
    }
}

TEST(Splitting, SaysWhereNotEvenAllRecomputationFits) {
    const std::vector<int> cuts = {4};
    Pipeline small(gigabytes_for("1f1b", cuts, -0.2), "1f1b");
    Splitter splitter(small.model, small.decisions, small.placed, *small.ready);
    EXPECT_FALSE(splitter.complete(cuts));
    EXPECT_TRUE(splitter.recomputes());
}

} // namespace
} // namespace tutti

// Scalings and what is known of them before anything is split: which there are, bounds that no plan is under, and
// estimates of step times against closed forms.
#include "planner/scaling.h"

#include "exhaustive.h"
#include "planner/step_time_estimate.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti {

using namespace planner;
namespace {

using Scaling = std::tuple<int, int, int, std::int64_t>; // tensor, pipe, data, micro-batch

std::multiset<Scaling> scalings_of(const std::vector<ScalingCandidate>& candidates) {
    std::multiset<Scaling> found;
    for (const ScalingCandidate& one : candidates)
        found.insert(
            {one.decisions.tensor_parallel.ranks, one.decisions.pipe, one.decisions.data, one.decisions.micro_batch});
    return found;
}

// Eight devices, of which at least 80% have to be used: as many replicas as divide the batch.
TEST(Scaling, CandidatesAreThoseThatDivideTheBatch) {
    for (const std::int64_t batch : {1, 6, 8, 24}) {
        Setting setting(small_cluster(2, 4, 1), 2, batch); // six blocks
        std::multiset<Scaling> expected;
        for (const int tensor : {1, 2, 4})
            for (int pipe = 1; pipe <= 6 && pipe * tensor <= 8; ++pipe) {
                int data = 8 / (tensor * pipe);
                while (batch % data != 0) --data;
                if (10 * tensor * pipe * data < 8 * 8) continue;
                for (std::int64_t b = 1; b <= 16; ++b)
                    if (batch / data % b == 0) expected.insert({tensor, pipe, data, b});
            }
        EXPECT_EQ(scalings_of(scaling_candidates(setting.model, {.assignment = false})), expected) << batch;
    }
}

TEST(Scaling, CandidatesAreOnlyThoseOfTheSearchSpace) {
    Setting setting(small_cluster(2, 4, 1), 2, 8);
    const PlanDecisions one{.tensor_parallel = {.ranks = 2}, .pipe = 2, .data = 2, .micro_batch = 2};
    EXPECT_EQ(scalings_of(scaling_candidates(setting.model, {.assignment = false, .scaling = one})),
              (std::multiset<Scaling>{{2, 2, 2, 2}}));
    for (const ScalingCandidate& candidate :
         scaling_candidates(setting.model, {.micro_batch = 2, .all_devices = true})) {
        EXPECT_EQ(candidate.decisions.micro_batch, 2);
        EXPECT_EQ(candidate.decisions.mesh().ranks(), 8);
        EXPECT_EQ(candidate.micro_batches * 2 * candidate.decisions.data, 8);
    }
}

// Every scaling here has eight ranks; in a bidirectional schedule, twice as many share the model.
TEST(Scaling, LeavesOutWhatDoesNotFitWithEverythingSharded) {
    const Setting any(small_cluster(2, 4, 1), 2, 8);
    const double bytes = static_cast<double>(any.chain.all_parameters * any.workload.precision.bytes_per_parameter());
    auto count = [&](double memory, bool offload) {
        Setting setting(small_cluster(2, 4, memory / 1e9), 2, 8);
        return scaling_candidates(setting.model, {.assignment = false, .offload = offload}).size();
    };
    EXPECT_GT(count(1.05 * bytes / 16, false), 0U);
    EXPECT_EQ(count(0.95 * bytes / 16, false), 0U);
    EXPECT_EQ(count(0.95 * bytes / 16, true), count(1.05 * bytes / 16, false));
}

// Every schedule, ZeRO level and cut of every scaling and layout.
TEST(Scaling, NoPlanIsFasterThanItsBound) {
    costs::Cluster mixed = small_cluster(2, 1, 1);
    mixed.kinds.push_back(node_of(1, 1, 2.5));
    mixed.nodes = {0, 1};
    for (const costs::Cluster& cluster : {small_cluster(2, 2, 1), small_cluster(1, 2, 0.006), mixed}) {
        Setting setting(cluster, 1, 4);
        int compared = 0;
        for (const ScalingCandidate& one : scaling_candidates(setting.model, {})) {
            Everything everything(setting);
            everything.try_all(one.decisions, place_ranks(setting.cluster, one.decisions.mesh(), one.decisions.layout));
            if (!everything.fits()) continue;
            EXPECT_GE(everything.best().cost.time, one.bound * (1 - 1e-9)) << describe(everything.best().decisions);
            ++compared;
        }
        EXPECT_GT(compared, 3);
    }
}

TEST(Scaling, NearestBatchesLetSomeScalingUseTheDevices) {
    Setting setting(small_cluster(16, 1, 1), 4, 1); // ten blocks: one replica uses ten of 16 devices, two use all
    EXPECT_EQ(nearest_batches(setting.model), (std::vector<std::int64_t>{2}));
    EXPECT_TRUE(scaling_candidates(setting.model, {.devices = 16}).empty());
    Setting works(small_cluster(16, 1, 1), 4, 2);
    EXPECT_EQ(nearest_batches(works.model).front(), 2);
    EXPECT_FALSE(scaling_candidates(works.model, {}).empty());
}

// Pipelines fill and empty once a step: T(D) = work + beta tau (1 - 1/D) + gamma (1/D - 1/N).
TEST(Scaling, LawReplicatesWhereIdleTimeCostsMoreThanReducing) {
    EXPECT_TRUE((ScalingLaw{.tau = 2, .gamma = 1}.replicates(1)));
    EXPECT_FALSE((ScalingLaw{.tau = 2, .gamma = 3}.replicates(1)));
    EXPECT_TRUE((ScalingLaw{.tau = 2, .gamma = 1}.replicates(0.5)));
}

ScalingCandidate candidate_of(Setting& setting, const PlanDecisions& scaling) {
    return scaling_candidates(setting.model, {.assignment = false, .scaling = scaling}).front();
}

std::vector<StepTimeEstimate> estimates_of(Setting& setting, const ScalingCandidate& candidate, const char* family) {
    const PlacedRanks placed = place_ranks(setting.cluster, candidate.decisions.mesh(), candidate.decisions.layout);
    return StepTimeEstimator(setting.model, candidate, placed)
        .estimates({.family = family,
                    .ranks = candidate.decisions.pipe,
                    .micro_batches = static_cast<int>(candidate.micro_batches)});
}

TEST(StepTimeEstimate, OfOneDeviceIsItsWorkAndItsUpdate) {
    Setting setting(small_cluster(1, 1, 1), 2, 8);
    const ScalingCandidate candidate = candidate_of(setting, {});
    const std::vector<StepTimeEstimate> estimates = estimates_of(setting, candidate, "1f1b");
    ASSERT_EQ(estimates.size(), 1U); // nothing to share
    EXPECT_EQ(estimates[0].zero, Zero(0));
    EXPECT_DOUBLE_EQ(estimates[0].seconds, candidate.bound + candidate.update);
    EXPECT_DOUBLE_EQ(candidate.bound, 8 * candidate.pass);
}

// 1F1B idles for (P - 1) stages' forward and backward; a bidirectional or zero-bubble schedule for less.
TEST(StepTimeEstimate, OfAPipelineHasTheIdleTimeOfItsSchedule) {
    for (const int pipe : {2, 4}) {
        Setting setting(small_cluster(pipe, 1, 1), 4, 16);
        const ScalingCandidate candidate = candidate_of(setting, {.pipe = pipe});
        const double idle = candidate.pass * (pipe - 1) / pipe;
        const double expected = candidate.bound + idle + candidate.update;
        EXPECT_NEAR(estimates_of(setting, candidate, "1f1b")[0].seconds, expected, 1e-6 * expected);
        const double less = estimates_of(setting, candidate, "zb-1p")[0].seconds;
        EXPECT_LT(less, candidate.bound + idle + candidate.update);
        EXPECT_GT(less, candidate.bound + candidate.update);
    }
}

TEST(StepTimeEstimate, OfReplicasIsOneForEveryZeroLevel) {
    Setting setting(small_cluster(2, 2, 1), 2, 16);
    const ScalingCandidate candidate = candidate_of(setting, {.data = 4});
    const std::vector<StepTimeEstimate> estimates = estimates_of(setting, candidate, "1f1b");
    ASSERT_EQ(estimates.size(), 4U);
    for (std::size_t level = 0; level < 4; ++level) EXPECT_EQ(estimates[level].zero, Zero(static_cast<int>(level)));
    EXPECT_GE(estimates[3].seconds, estimates[2].seconds); // weights are gathered, too
}

// What memory lacks is recomputed: at half the price of the average byte, of all of the forward at most.
TEST(StepTimeEstimate, RisesAsMemoryShrinksByNoMoreThanHalfAForward) {
    double before = 0, roomy = 0;
    for (const double gigabytes : {1.0, 0.012, 0.008, 0.006, 0.004}) {
        Setting setting(small_cluster(2, 1, gigabytes), 4, 16);
        const ScalingCandidate candidate = candidate_of(setting, {.pipe = 2, .micro_batch = 4});
        const double seconds = estimates_of(setting, candidate, "1f1b")[0].seconds;
        if (before == 0) roomy = seconds;
        EXPECT_GE(seconds, before);
        EXPECT_LE(seconds, roomy + 0.5 * candidate.bound);
        before = seconds;
    }
    EXPECT_GT(before, roomy);
}

} // namespace
} // namespace tutti

#include "train/session/doubts.h"

#include "schedule/families.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace train;
namespace {

struct Asked {
    run::RunConfig config;
    Plan plan;
    models::ModelFacts facts;

    Asked() {
        config.steps = 100;
        facts.causal = true;
        facts.architecture = "gpt2";
    }
    std::vector<std::string> doubts() const { return doubts_about(config, plan, facts); }
};

TEST(Doubts, AreNoneOfWhatMakesSense) {
    Asked asked;
    asked.config.warmup = 100;
    EXPECT_TRUE(asked.doubts().empty());
}

TEST(Doubts, NameTheSettingThatDoesNothing) {
    Asked asked;
    asked.config.warmup = 101;
    ASSERT_EQ(asked.doubts().size(), 1U);
    EXPECT_TRUE(asked.doubts()[0].starts_with("warmup is 101 and steps is 100"));
    asked.config.warmup = 0;
    asked.config.mask_token = 3;
    ASSERT_EQ(asked.doubts().size(), 1U);
    EXPECT_TRUE(asked.doubts()[0].starts_with("mask_token is 3"));
    asked.facts.causal = false;
    EXPECT_TRUE(asked.doubts().empty());
}

// The layout that it proposes has as many ranks as there are.
TEST(Doubts, ProposeAPipelineToWhoAsksForAScheduleAlone) {
    Asked asked;
    asked.config.schedule = "1f1b";
    asked.plan.mesh.data = 4;
    ASSERT_EQ(asked.doubts().size(), 1U);
    EXPECT_NE(asked.doubts()[0].find("--mesh " + sharding::to_string(sharding::Mesh{.pipe = 2, .data = 2})),
              std::string::npos)
        << asked.doubts()[0];
    asked.plan.mesh = {.pipe = 2, .data = 2};
    EXPECT_TRUE(asked.doubts().empty());
}

TEST(Doubts, SayThatNothingIsRecomputedEarly) {
    Asked asked;
    asked.plan.mesh.pipe = 2;
    auto schedule_of = [](const char* family, std::vector<schedule::Recompute> recompute) {
        schedule::ScheduleParameters parameters = schedule::resolve({.family = family, .ranks = 2, .micro_batches = 4});
        parameters.recompute = std::move(recompute);
        return PlannedSchedule{{.parameters = parameters}, {}};
    };
    asked.plan.schedule = schedule_of("early-recompute", {schedule::Recompute::never, schedule::Recompute::never});
    ASSERT_EQ(asked.doubts().size(), 1U);
    EXPECT_EQ(asked.doubts()[0], "schedule is early-recompute, which recomputes activations before their gradient "
                                 "comes, and nothing is recomputed: --recompute says which share of the layers is, as "
                                 "in --recompute full");
    asked.plan.schedule = schedule_of("1f1b", {schedule::Recompute::early, schedule::Recompute::early});
    asked.config.plan = "p.json";
    ASSERT_EQ(asked.doubts().size(), 1U);
    EXPECT_TRUE(asked.doubts()[0].ends_with("nothing is recomputed: recompute names no block in p.json"));
    asked.plan.recompute = {{0}, {}};
    EXPECT_TRUE(asked.doubts().empty());
}

} // namespace
} // namespace tutti

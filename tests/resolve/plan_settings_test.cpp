// Settings on their way from a flag into a plan, its file, and back into the config that follows it.
#include "models/builtin.h"
#include "plan/settings_table.h"
#include "resolve/run_plan.h"
#include "run/run_options.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace resolve;
using namespace run;
namespace {

// A run of two ranks on the tensor axis, in which any single setting may be another.
RunConfig any_setting_fits() {
    RunConfig config;
    config.mesh = sharding::Mesh{.tensor = 2};
    config.precision.compute = DType::bfloat16;
    return config;
}

Plan plan_of(const RunConfig& config) {
    const models::ModelSource source = models::open_model(config.model);
    const models::Model model = source.build({4, 16, config.precision.compute});
    const Workload& asked = config.workload;
    const DataShape data{.sequence = asked.sequence > 0 ? asked.sequence : 16,
                         .global_batch = asked.global_batch > 0 ? asked.global_batch : 4};
    return make_plan(config, data, model, Bytes{std::int64_t{1} << 40});
}

// The text of a flag that the option takes, and that says something new.
std::string other_text(const RunOption& option, const RunConfig& usual) {
    for (const char* text : {"reference", "true", "2", "float32", "bf16", "host", "lru", "end", "off", "on", "12MiB"}) {
        RunConfig config = usual;
        try {
            set_from_text(config, option, text);
        } catch (const Error&) {
            continue;
        }
        if (option.get(config) != option.get(usual)) return text;
    }
    ADD_FAILURE() << option.key;
    return "";
}

TEST(PlanSettings, EachGoesFromItsFlagThroughThePlanFileAndBack) {
    const RunConfig usual = any_setting_fits();
    for (const PlanSetting& setting : plan_settings()) {
        SCOPED_TRACE(setting.key);
        const RunOption* option = find_run_option(setting.key);
        ASSERT_NE(option, nullptr);
        RunConfig config = usual;
        set_from_text(config, *option, other_text(*option, usual));
        const Plan plan = plan_of(config);
        const Plan again = parse_plan(to_json(plan), "plan.json");
        EXPECT_EQ(again, plan);
        const RunConfig followed = with_plan(RunConfig{}, again);
        EXPECT_EQ(to_plain(option->get(followed)), to_plain(option->get(config)));
        EXPECT_EQ(followed.settings(), plan.settings());
    }
}

TEST(PlanSettings, WhatIsLeftOpenIsDecided) {
    RunConfig config;
    EXPECT_EQ(plan_of(config).chunk_elements, large_chunk);
    EXPECT_EQ(plan_of(config).workload, (Workload{.sequence = 16, .global_batch = 4, .micro_batch = 4}));
    config.mesh = sharding::Mesh{.data = 2};
    EXPECT_EQ(plan_of(config).chunk_elements, small_chunk);
    EXPECT_EQ(plan_of(config).workload.micro_batch, 2);
}

// Flags have no word for narrow types that are float64, and a config that is saved has to read back.
TEST(PlanSettings, Float64KeepsEverythingInFloat64AndIsAskedForOnce) {
    RunConfig config;
    config.precision.compute = DType::float64;
    const Plan plan = plan_of(config);
    EXPECT_EQ(plan.precision, (Precision{DType::float64, DType::float64, DType::float64, DType::float64}));
    EXPECT_EQ(with_plan(config, plan).precision, config.precision);
}

TEST(PlanSettings, APlanIsCompletedByWhatItLeavesOpenAlone) {
    const Plan plan = plan_of(RunConfig{});
    Plan complete = plan;
    complete.fusion = fusion_of(plan);
    complete.timed_kernels = {{"gpu", {{"work", "1"}}}};
    EXPECT_TRUE(completes(complete, plan));
    EXPECT_FALSE(completes(plan, complete)); // what it had decided is not open
    Plan other = complete;
    other.zero = 1;
    EXPECT_FALSE(completes(other, plan));
    Plan fused = plan;
    fused.fusion = for_dump(plan).fusion;
    EXPECT_FALSE(completes(complete, fused));
}

// Gradients that lie over weights are gone when a dump would be written, and so are logits of a fused head.
TEST(PlanSettings, ADumpKeepsGradientsAndLogits) {
    const Plan plan = plan_of(RunConfig{}), dumped = for_dump(plan);
    EXPECT_TRUE(plan.gradients_over_weights);
    EXPECT_TRUE(fusion_of(plan).head);
    EXPECT_FALSE(dumped.gradients_over_weights);
    EXPECT_FALSE(fusion_of(dumped).head);
}

TEST(PlanSettings, APlanThatIsGivenIsNotReadAgain) {
    RunConfig config;
    EXPECT_FALSE(followed_plan(config, nullptr));
    config.plan = "/nowhere/plan.json";
    Plan plan;
    plan.model = "given";
    EXPECT_EQ(followed_plan(config, &plan), plan);
    EXPECT_THROW(followed_plan(config, nullptr), Error);
}

} // namespace
} // namespace tutti::test

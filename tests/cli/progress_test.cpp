#include "cli/progress.h"

#include <gtest/gtest.h>

namespace tutti::cli {

using namespace run;
namespace {

TEST(Progress, TheLineKeepsStepLossAndTimeLeftHoweverNarrow) {
    StepReport step;
    step.step = 41;
    step.loss = 3.14159;
    step.gradient_norm = 1.25;
    step.learning_rate = 1e-3;
    step.duration = {0.4};
    step.tokens_per_second = 5120;
    step.memory = {111812608};
    EXPECT_EQ(step_line(step, 200, {125}, 200),
              "step  42/200  loss 3.1416  norm 1.25  lr 1.00e-03  400 ms  5.12k tokens/s  106.63 MiB  2 m 05 s left");
    for (std::size_t columns : {100u, 90u, 80u, 70u, 60u, 50u, 42u}) {
        const std::string line = step_line(step, 200, {125}, columns);
        EXPECT_LE(line.size(), columns);
        EXPECT_TRUE(line.starts_with("step  42/200") && line.ends_with("2 m 05 s left")) << line;
    }
    EXPECT_EQ(step_line(step, 200, {125}, 10).size(), 10u);
}

TEST(Progress, AboutTwentyPlainLines) {
    EXPECT_EQ(line_stride(1), 1);
    EXPECT_EQ(line_stride(20), 1);
    EXPECT_EQ(line_stride(60), 5);
    EXPECT_EQ(line_stride(200), 10);
    EXPECT_EQ(line_stride(100000), 5000);
}

TEST(Progress, SaysWhatAShareOfRecomputationCameTo) {
    RunSummary summary;
    summary.plan.workload = {16, 4, 2};
    summary.blocks = 9;
    EXPECT_EQ(describe(summary, cores::Binding{}).find("recomputed"), std::string::npos);
    summary.plan.recompute = {{}};
    EXPECT_NE(describe(summary, cores::Binding{}).find(" none of 9 blocks\n"), std::string::npos)
        << describe(summary, cores::Binding{});
    summary.plan.recompute = {{2, 3, 4}};
    EXPECT_NE(describe(summary, cores::Binding{}).find(" 3 of 9 blocks\n"), std::string::npos);
    summary.plan.cuts = {4, 8};
    summary.plan.recompute = {{2, 3}, {4, 5}, {8}};
    EXPECT_NE(describe(summary, cores::Binding{}).find("5 of 9 blocks; by stage 2 of 4, 2 of 4, 1 of 1\n"),
              std::string::npos)
        << describe(summary, cores::Binding{});
    summary.plan.cuts = {3, 6};
    summary.plan.recompute = {{2}, {4}, {8}};
    EXPECT_NE(describe(summary, cores::Binding{}).find("3 of 9 blocks: 1 of 3 in every stage\n"), std::string::npos)
        << describe(summary, cores::Binding{});
}

// 2457600.00 times the least possible, where that is nothing.
TEST(Progress, CopiesAreNotComparedWithNone) {
    OffloadSummary offload;
    offload.fetched = {2457600};
    EXPECT_NE(describe({}, offload).find("2.34 MiB to the device, 0 B back: none of it has to be copied"),
              std::string::npos)
        << describe({}, offload);
    offload.least = {1228800};
    EXPECT_NE(describe({}, offload).find("back: 2.00 times the least possible"), std::string::npos);
}

} // namespace
} // namespace tutti::cli

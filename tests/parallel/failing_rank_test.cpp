// One rank cannot read its data, or all diverge: every rank is alive, so what was done is saved, and all end together.
#include "run_ranks.h"

#include "base/error.h"
#include "checkpoints/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::test {

using namespace checkpoints;
using namespace run;
using namespace sharding;
namespace {

// An llm.c file of bytes as tokens; from `bad` on they are none of the model's.
std::string tokens(std::size_t count, std::size_t bad) {
    std::vector<std::int32_t> header(256);
    header[0] = 20240520, header[1] = 1, header[2] = static_cast<std::int32_t>(count);
    std::vector<std::uint16_t> ids(count);
    for (std::size_t i = 0; i < count; ++i) ids[i] = i < bad ? static_cast<std::uint16_t>(40 + i * i % 80) : 60000;
    std::string bytes(reinterpret_cast<const char*>(header.data()), header.size() * sizeof header[0]);
    return bytes + std::string(reinterpret_cast<const char*>(ids.data()), count * sizeof ids[0]);
}

struct FailingLayout {
    const char* name;
    Mesh mesh;
};

class FailingRank : public testing::TestWithParam<FailingLayout> {
  protected:
    RunConfig config() const {
        RunConfig config = small_run("gpt2");
        config.mesh = GetParam().mesh;
        config.steps = 40;
        config.workload.sequence = 8;
        config.workload.global_batch = 2;
        config.lr_schedule = LearningRateSchedule::constant;
        config.data = folder_.write("good.bin", tokens(700, 700)).string();
        config.output = (folder_ / "run").string();
        return config;
    }
    std::string end_of(const RunConfig& config, const std::function<void(RunConfig&, std::size_t)>& own = {}) const {
        return error_of([&] { train_on_ranks(config, usual_speeds, own); });
    }
    // The only one that there is; 0: none.
    std::int64_t saved_step() const {
        const std::vector<CheckpointInfo> all = list_checkpoints(folder_ / "run").readable;
        EXPECT_LE(all.size(), 1u);
        EXPECT_TRUE(all.empty() || is_intact(all[0]));
        return all.empty() ? 0 : all[0].state.step;
    }

    TemporaryFolder folder_;
};

TEST_P(FailingRank, ThatCannotReadABatchEndsTheRunOnAllAfterTheStepsBeforeAreSaved) {
    RunConfig whole = config();
    whole.output.clear();
    const Recorder expected = train_on_ranks(whole).listeners[0];
    const std::string bad = folder_.write("bad.bin", tokens(700, 600)).string();
    const std::string end = end_of(config(), [&](RunConfig& own, std::size_t rank) {
        if (rank == 1) own.data = bad;
    });
    const std::int64_t step = saved_step();
    ASSERT_GT(step, 0);
    EXPECT_TRUE(end.starts_with("rank 1: ")) << end;
    EXPECT_TRUE(end.ends_with(fmt::format("; --resume goes on from step {}", step))) << end;
    RunConfig rest = config();
    rest.resume = true;
    const Recorder found = train_on_ranks(rest).listeners[0];
    ASSERT_EQ(static_cast<std::int64_t>(found.steps.size()), 40 - step);
    for (std::size_t i = 0; i < found.steps.size(); ++i)
        EXPECT_EQ(found.steps[i].loss, expected.steps[static_cast<std::size_t>(step) + i].loss) << i;
}

TEST_P(FailingRank, ThatCannotReadWhatItEvaluatesSavesTheStepsBefore) {
    RunConfig evaluating = config();
    evaluating.eval_every = 3;
    evaluating.eval_batches = 4;
    evaluating.eval_data = evaluating.data;
    const std::string bad = folder_.write("bad.bin", tokens(700, 0)).string();
    const std::string end = end_of(evaluating, [&](RunConfig& own, std::size_t rank) {
        if (rank == 1) own.eval_data = bad;
    });
    EXPECT_TRUE(end.starts_with("rank 1: ") && end.ends_with("; --resume goes on from step 3")) << end;
    EXPECT_EQ(saved_step(), 3);
}

TEST_P(FailingRank, ADivergenceLeavesTheStateAfterTheLastFiniteStep) {
    RunConfig diverging = config();
    diverging.lr = 1e30;
    diverging.non_finite_limit = 3;
    const std::string end = end_of(diverging);
    const std::int64_t step = saved_step();
    EXPECT_GT(step, 0);
    EXPECT_NE(end.find(fmt::format("step {}: the loss or the gradient norm is not finite", step + 3)),
              std::string::npos)
        << end;
    EXPECT_NE(end.find("the first bad tensor is the output of"), std::string::npos) << end;
    EXPECT_TRUE(end.ends_with(fmt::format("; --resume goes on from step {}", step))) << end;
}

INSTANTIATE_TEST_SUITE_P(Of, FailingRank,
                         testing::Values(FailingLayout{"Replicas", {.data = 2}}, FailingLayout{"Stages", {.pipe = 2}},
                                         FailingLayout{"Slices", {.tensor = 2}}),
                         [](const auto& layout) { return std::string(layout.param.name); });

} // namespace
} // namespace tutti::test

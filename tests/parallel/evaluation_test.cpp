// Evaluation on many ranks: replicas share the samples, stages hand over forward alone.
#include "run_ranks.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace run;
using namespace sharding;
using namespace train;
namespace {

class Evaluation : public testing::TestWithParam<RunConfig> {};

RunConfig laid_out(Mesh mesh, int zero = 0, const std::string& schedule = "") {
    RunConfig config = small_run("llama");
    config.steps = 2;
    config.eval_every = 1;
    config.eval_batches = 5; // so that replicas have different numbers of them
    config.mesh = mesh;
    config.zero = zero;
    config.schedule = schedule;
    return config;
}

TEST_P(Evaluation, IsThatOfOneProcess) {
    RunConfig one = GetParam();
    one.mesh.reset();
    one.schedule.clear();
    one.zero = 0;
    Recorder expected;
    const std::atomic<bool> stop = false;
    train::train(one, expected, stop);
    const RanksResult found = train_on_ranks(GetParam());
    ASSERT_EQ(expected.evaluations.size(), 2u);
    for (const Recorder& rank : found.listeners) {
        ASSERT_EQ(rank.evaluations.size(), 2u);
        for (std::size_t i = 0; i < 2; ++i)
            EXPECT_NEAR(rank.evaluations[i], expected.evaluations[i], 3e-6 * expected.evaluations[i]);
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Evaluation,
                         testing::Values(laid_out({.data = 2}), laid_out({.pipe = 2}), laid_out({.tensor = 2}),
                                         laid_out({.data = 2}, 3), laid_out({.pipe = 2}, 0, "interleaved"),
                                         laid_out({.pipe = 2}, 0, "dualpipe"),
                                         laid_out({.pipe = 2, .data = 2}, 3, "chimera"),
                                         laid_out({.pipe = 2, .data = 2, .tensor = 2}, 2)),
                         [](const auto& layout) { return "Layout" + std::to_string(layout.index); });

} // namespace
} // namespace tutti::test

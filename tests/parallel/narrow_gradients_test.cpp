// Gradients of parameters in bf16 on many ranks: near one process, which adds them up in another order.
#include "run_ranks.h"

#include "sharding/mesh.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace run;
using namespace sharding;
namespace {

struct Layout {
    const char* name;
    Mesh mesh;
    int zero = 0;
    const char* schedule = "";
    std::function<void(RunConfig&)> change = {};
    bool over = true; // with one micro-batch per step, some gradients lie over weights
};

std::vector<Layout> layouts() {
    return {
        {"Data", {.data = 2}},
        {"Zero1", {.data = 2}, 1},
        {"Zero2", {.data = 4}, 2, "", {}, false}, // shares lie otherwise than what they are of
        {"Zero3", {.data = 2}, 3, "", {}, false},
        {"Tensor", {.tensor = 2}},
        {"Halves",
         {.tensor = 2},
         0,
         "",
         [](RunConfig& config) {
             config.sub_pipeline = true;
             config.workload.micro_batch = 2;
         }}, // some chunks: most are read by the other half
        {"Split", {.pipe = 2}, 0, "zb-1p"},
        {"Copies", {.pipe = 2}, 0, "dualpipe", {}, false},
        {"Recompute", {}, 0, "", [](RunConfig& config) { config.recompute.share = 1; }},
        {"All", {.pipe = 2, .data = 2, .tensor = 2}, 3, "", {}, false},
    };
}

class NarrowGradients : public testing::TestWithParam<Layout> {};

TEST_P(NarrowGradients, AreNearThoseOfOneProcess) {
    RunConfig config = small_run("gpt2");
    config.precision.compute = config.precision.gradients = DType::bfloat16;
    static const Recorder expected = train_on_ranks(config).listeners[0];
    config.mesh = GetParam().mesh;
    config.zero = GetParam().zero;
    config.schedule = GetParam().schedule;
    if (GetParam().change) GetParam().change(config);
    const RanksResult result = train_on_ranks(config);
    for (const Recorder& found : result.listeners) {
        ASSERT_EQ(found.steps.size(), expected.steps.size());
        for (std::size_t i = 0; i < found.steps.size(); ++i) {
            const StepReport &a = expected.steps[i], &b = found.steps[i];
            EXPECT_NEAR(b.loss, a.loss, 2e-3 * a.loss) << "step " << i;
            EXPECT_NEAR(b.gradient_norm, a.gradient_norm, 1e-2 * a.gradient_norm) << "step " << i;
        }
    }
    if (config.zero < 2) {
        const MemoryTable& memory = result.listeners[0].summary.memory;
        EXPECT_EQ(memory.gradients, memory.weights);
    }
}

// One micro-batch per step: over weights where these are whole on every rank, and the same bits as apart.
TEST_P(NarrowGradients, OverWeightsAreTheSameBits) {
    RunConfig config = small_run("gpt2");
    config.precision.compute = config.precision.gradients = DType::bfloat16;
    config.mesh = GetParam().mesh;
    config.zero = GetParam().zero;
    config.schedule = GetParam().schedule;
    config.eval_every = 2;
    if (GetParam().change) GetParam().change(config);
    config.workload.micro_batch = config.workload.global_batch / config.mesh->data;
    if (config.schedule == "dualpipe") config.workload.micro_batch /= 4; // which needs some
    const RanksResult over = train_on_ranks(config);
    config.gradients_over_weights = false;
    const RanksResult apart = train_on_ranks(config);
    for (std::size_t rank = 0; rank < over.listeners.size(); ++rank) {
        const Recorder &a = over.listeners[rank], &b = apart.listeners[rank];
        ASSERT_EQ(a.steps.size(), b.steps.size());
        for (std::size_t i = 0; i < a.steps.size(); ++i) {
            EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "rank " << rank << " step " << i;
            EXPECT_EQ(a.steps[i].gradient_norm, b.steps[i].gradient_norm) << "rank " << rank << " step " << i;
        }
        EXPECT_EQ(a.evaluations, b.evaluations);
        EXPECT_EQ(b.summary.memory.over_weights, Bytes{});
        EXPECT_EQ(a.summary.memory.over_weights.count > 0, GetParam().over);
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, NarrowGradients, testing::ValuesIn(layouts()),
                         [](const auto& layout) { return std::string(layout.param.name); });

} // namespace
} // namespace tutti::test

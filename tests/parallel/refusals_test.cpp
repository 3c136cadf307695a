// Layouts that a model does not allow: a sentence that says which would be.
#include "run_ranks.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace run;
using namespace sharding;
namespace {

void expect_refusal(const std::string& model, const Mesh& mesh, int stages_per_rank, const std::string& sentence) {
    RunConfig config = small_run(model);
    config.mesh = mesh;
    config.stages_per_rank = stages_per_rank;
    config.workload.global_batch = 44; // micro-batches in multiples of every number of ranks here
    if (stages_per_rank > 1) config.schedule = "interleaved";
    try {
        train_on_ranks(config);
        FAIL() << "it ran on " << to_string(mesh) << " instead of saying: " << sentence;
    } catch (const Error& error) {
        EXPECT_EQ(error.what(), sentence);
    }
}

TEST(Refusals, SayHowWideTheTensorAxisCanBe) {
    expect_refusal(
        "llama", {.tensor = 3}, 0,
        "model.layers.3.self_attn has 2 key heads, which cannot be sharded over 3 ranks; the tensor axis can "
        "have at most 2");
}

TEST(Refusals, SayHowManyStagesThereCanBe) {
    expect_refusal("gpt2", {.pipe = 11}, 0,
                   "the model has 10 blocks, too few for 11 stages: the pipe axis can have at most 10 ranks");
    expect_refusal("gpt2", {.pipe = 4}, 3,
                   "the model has 10 blocks, too few for 12 stages: with 3 stages per rank the pipe axis can have at "
                   "most 3 ranks");
    expect_refusal("gpt2", {.pipe = 2}, 11,
                   "the model has 10 blocks, too few for 22 stages: a rank can have at most 5 stages");
}

} // namespace
} // namespace tutti::test

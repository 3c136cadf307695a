// The same layout twice is the same bits, whenever messages come and whoever is first.
#include "run_ranks.h"

#include "base/file.h"

#include <gtest/gtest.h>

namespace tutti::test {

using namespace run;
using namespace sharding;
namespace {

void expect_same_bits(const RanksResult& once, const RanksResult& again) {
    for (std::size_t rank = 0; rank < once.listeners.size(); ++rank) {
        const auto &a = once.listeners[rank].steps, &b = again.listeners[rank].steps;
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
            EXPECT_EQ(a[i].loss, b[i].loss) << "rank " << rank << " step " << i;
            EXPECT_EQ(a[i].gradient_norm, b[i].gradient_norm) << "rank " << rank << " step " << i;
        }
        EXPECT_EQ(once.listeners[rank].evaluations, again.listeners[rank].evaluations);
    }
}

// Losses, norms and evaluations of every rank, and the files at the end.
void expect_same_bits_twice(RunConfig config) {
    config.eval_every = 2;
    config.eval_batches = 3;
    const TemporaryFolder folder;
    std::vector<RanksResult> results;
    for (const char* name : {"once", "again"}) {
        config.output = (folder / name).string();
        results.push_back(train_on_ranks(config));
    }
    expect_same_bits(results[0], results[1]);
    for (const char* file : {"model/model.safetensors", "checkpoints/step-00000004/state.safetensors", "plan.json"})
        EXPECT_TRUE(read_text(folder / "once" / file) == read_text(folder / "again" / file)) << file;
}

TEST(SameBits, OfReplicasThatShareEverything) {
    for (const int zero : {1, 3}) {
        RunConfig config = small_run("llama");
        config.mesh = Mesh{.data = 3};
        config.workload.global_batch = 6;
        config.zero = zero;
        expect_same_bits_twice(config);
    }
}

TEST(SameBits, OfAllAxesWithDropout) {
    const TemporaryFolder folder;
    RunConfig config = small_run("gpt2");
    config.model = with_dropout("gpt2", folder).string();
    config.mesh = Mesh{.pipe = 2, .data = 2, .tensor = 2};
    config.zero = 2;
    config.precision.compute = DType::bfloat16;
    config.precision.gradients = DType::bfloat16;
    config.precision.master = config.precision.moments = DType::bfloat16; // rounded stochastically
    expect_same_bits_twice(config);
}

TEST(SameBits, OfSchedulesWithCopies) {
    RunConfig config = small_run("qwen2");
    config.mesh = Mesh{.pipe = 2};
    config.schedule = "dualpipe";
    expect_same_bits_twice(config);
}

} // namespace
} // namespace tutti::test

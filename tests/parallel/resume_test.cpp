// Checkpoints and models between layouts: a run may stop on one mesh and go on on any other.
#include "run_ranks.h"

#include "base/error.h"
#include "checkpoints/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::test {

using namespace checkpoints;
using namespace run;
using namespace sharding;
namespace {

struct Leg {
    Mesh mesh;
    int zero = 0;
    std::string schedule = {};
};

RunConfig with(RunConfig config, const Leg& leg) {
    config.mesh = leg.mesh;
    config.zero = leg.zero;
    config.schedule = leg.schedule;
    return config;
}

void append(Recorder& all, const Recorder& more) {
    all.steps.insert(all.steps.end(), more.steps.begin(), more.steps.end());
}

// One step at a time, each on another mesh.
TEST(Resume, ARunGoesOnOnAnyOtherMesh) {
    const TemporaryFolder folder;
    const std::vector<Leg> legs = {{{}},
                                   {{.pipe = 2, .tensor = 2}},
                                   {{.data = 4}, 1},
                                   {{.pipe = 3}, 0, "gpipe"},
                                   {{.data = 2, .tensor = 2}, 3},
                                   {{.tensor = 3}}};
    for (DType dtype : {DType::float32, DType::bfloat16}) {
        RunConfig config = small_run("bert");
        config.steps = static_cast<std::int64_t>(legs.size());
        config.precision.compute = dtype;
        const Recorder expected = train_on_ranks(config).listeners[0];
        config.output = (folder / std::string(name_of(dtype))).string();
        config.stop_after = 1;
        Recorder found;
        for (const Leg& leg : legs) {
            const RanksResult result = train_on_ranks(with(config, leg));
            for (const Recorder& rank : result.listeners) ASSERT_EQ(rank.steps.size(), 1u);
            append(found, result.listeners[0]);
            config.resume = true;
        }
        if (dtype == DType::float32) {
            expect_same_training(expected, found);
        } else { // sums are formed in another order, and rounded to 8 bits
            for (std::size_t i = 0; i < legs.size(); ++i)
                EXPECT_NEAR(found.steps[i].loss, expected.steps[i].loss, 2e-3 * expected.steps[i].loss) << i;
        }
        EXPECT_TRUE(fs::exists(fs::path(config.output) / "model/model.safetensors"));
    }
}

TEST(Resume, OnTheSameMeshItIsTheSameBits) {
    const TemporaryFolder folder;
    constexpr DType wide = DType::float32, narrow = DType::bfloat16;
    int number = 0;
    // Without master weights, these and moments are rounded stochastically.
    for (const auto& [leg, kept] : {std::pair(Leg{{.pipe = 2, .tensor = 2}}, narrow),
                                    {{{.data = 2, .tensor = 2}, 1}, wide},
                                    {{{.data = 2, .tensor = 2}, 1}, narrow},
                                    {{{.data = 3}, 3}, wide}}) {
        RunConfig config = with(small_run("gpt2"), leg);
        config.workload.global_batch = 6;
        config.precision.compute = DType::bfloat16;
        config.precision.master = config.precision.moments = kept;
        config.output = (folder / fmt::format("whole{}", number)).string();
        const Recorder whole = train_on_ranks(config).listeners[0];
        config.output = (folder / fmt::format("halves{}", number++)).string();
        config.stop_after = 2;
        Recorder halves = train_on_ranks(config).listeners[0];
        config.resume = true;
        append(halves, train_on_ranks(config).listeners[0]);
        ASSERT_EQ(halves.steps.size(), whole.steps.size());
        for (std::size_t i = 0; i < whole.steps.size(); ++i) {
            EXPECT_EQ(halves.steps[i].loss, whole.steps[i].loss) << "zero " << leg.zero << " step " << i;
            EXPECT_EQ(halves.steps[i].gradient_norm, whole.steps[i].gradient_norm) << i;
        }
        for (const char* file : {"model/model.safetensors", "checkpoints/step-00000004/state.safetensors"})
            EXPECT_TRUE(read_text(folder / fmt::format("whole{}", number - 1) / file) ==
                        read_text(fs::path(config.output) / file))
                << file << " zero " << leg.zero;
    }
}

// Nothing is trained, so that the weights are those of the model folder or of the seed: the same bytes.
TEST(Resume, FirstWeightsAreTheSameOnEveryMesh) {
    const TemporaryFolder folder;
    for (const std::string& model : {std::string("gpt2-tiny"), small_run("gpt2").model}) {
        RunConfig config = small_run("gpt2");
        config.model = model;
        config.steps = 1;
        config.lr = config.lr_min = 0;
        config.weight_decay = 0;
        std::string expected;
        int number = 0;
        for (const Leg& leg :
             {Leg{}, Leg{{.pipe = 2, .tensor = 2}}, Leg{{.data = 4}, 3}, Leg{{.pipe = 2}, 0, "interleaved"}}) {
            const fs::path output = folder / fmt::format("{}-{}", fs::path(model).filename().string(), number++);
            config.output = output.string();
            train_on_ranks(with(config, leg));
            const std::string found = read_text(output / "model/model.safetensors");
            if (expected.empty()) expected = found;
            EXPECT_TRUE(found == expected) << output;
            EXPECT_TRUE(is_intact(inspect_checkpoint(output / "checkpoints/step-00000001")));
        }
    }
}

} // namespace
} // namespace tutti::test

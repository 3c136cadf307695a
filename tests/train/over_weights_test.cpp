// Gradients that lie over the weights: the same run to the bit, in less memory.
#include "base/file.h"
#include "formats/safetensors.h"
#include "support/recorder.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace tutti {

using namespace formats;
using namespace run;
using namespace test;
using namespace train;
namespace {

using test::TemporaryFolder;

using test::Recorder;

// One micro-batch per step, and chunks of about a layer.
RunConfig small_run(const std::string& model) {
    RunConfig config;
    config.model = model;
    config.steps = 5;
    config.workload.sequence = 16;
    config.workload.global_batch = config.workload.micro_batch = 4;
    config.threads = 2;
    config.device = test::device_to_test();
    config.precision.compute = config.precision.gradients = DType::bfloat16;
    config.chunk_elements = 200'000;
    config.eval_every = 2;
    config.eval_batches = 2;
    return config;
}

Recorder run(const RunConfig& config) {
    Recorder recorder;
    const std::atomic<bool> stop = false;
    train::train(config, recorder, stop);
    return recorder;
}

void expect_same(const Recorder& a, const Recorder& b) {
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t i = 0; i < a.steps.size(); ++i) {
        EXPECT_EQ(a.steps[i].skipped, b.steps[i].skipped) << i;
        if (a.steps[i].skipped) continue;
        EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << i;
        EXPECT_EQ(a.steps[i].gradient_norm, b.steps[i].gradient_norm) << i;
    }
    EXPECT_EQ(a.evaluations, b.evaluations);
}

TEST(OverWeights, GivesTheSameBitsInLessMemory) {
    const TemporaryFolder folder;
    int number = 0;
    for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"})
        for (bool otherwise : {false, true}) {
            RunConfig config = small_run(model);
            if (otherwise) {
                config.recompute.share = 1;
                config.precision.moments = DType::bfloat16;
                config.split_backward = true;
            }
            SCOPED_TRACE(model);
            config.output = (folder / std::to_string(number++)).string();
            const Recorder over = run(config);
            const std::string of_over = config.output;
            config.output = (folder / std::to_string(number++)).string();
            config.gradients_over_weights = false;
            const Recorder apart = run(config);
            expect_same(over, apart);
            for (const char* file : {"model/model.safetensors", "checkpoints/step-00000005/state.safetensors"})
                EXPECT_TRUE(read_text(fs::path(of_over) / file) == read_text(fs::path(config.output) / file)) << file;
            const MemoryTable &less = over.summary.memory, &more = apart.summary.memory;
            EXPECT_EQ(more.over_weights, Bytes{});
            EXPECT_EQ(more.gradients, more.weights);
            EXPECT_EQ(less.gradients + less.over_weights, more.gradients);
            EXPECT_LT(10 * less.gradients.count, more.gradients.count); // the head's
        }
}

TEST(OverWeights, IsLeftWhereGradientsAreAddedUpOrWeightsHaveNoCopy) {
    auto over = [](auto change) {
        RunConfig config = small_run("llama-tiny");
        config.dry_run = true;
        change(config);
        return run(config).summary.memory.over_weights.count;
    };
    EXPECT_GT(over([](RunConfig&) {}), 0);
    EXPECT_EQ(over([](RunConfig& config) { config.workload.micro_batch = 2; }), 0);
    EXPECT_EQ(over([](RunConfig& config) { config.precision.master = DType::bfloat16; }), 0);
    EXPECT_EQ(over([](RunConfig& config) { config.precision.gradients = DType::float32; }), 0);
    EXPECT_EQ(over([](RunConfig& config) { config.dump_step0 = "unused.safetensors"; }), 0);
}

// A token whose embedding is not finite, in some batches only: these are skipped, and the weights have to be there for
// the next one, and at the end.
TEST(OverWeights, SkippedStepsRestoreTheWeights) {
    const TemporaryFolder folder;
    RunConfig config = small_run("llama-tiny");
    config.output = (folder / "made").string();
    config.steps = 1;
    config.precision.compute = config.precision.gradients = DType::float32;
    run(config);
    const fs::path weights = folder / "made/model/model.safetensors";
    std::string bytes = read_text(weights);
    const SafetensorsFile file(weights);
    const TensorEntry* entry = file.find("model.embed_tokens.weight");
    ASSERT_NE(entry, nullptr);
    ASSERT_EQ(entry->type.dtype, DType::float32);
    const std::uint64_t row = entry->bytes() / 256;
    const float bad = std::numeric_limits<float>::max(); // infinite in bf16
    std::memcpy(bytes.data() + entry->begin + 'Z' * row, &bad, sizeof bad);
    write_text_atomically(weights, bytes);
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 10 == 0 ? "a line with Z.  " : "one without it. ";
    folder.write("text.txt", text);

    config = small_run((folder / "made/model").string());
    config.data = (folder / "text.txt").string();
    config.eval_every = 0;
    config.steps = 12;
    config.non_finite_limit = 1000;
    std::vector<Recorder> found;
    for (bool over : {true, false}) {
        config.gradients_over_weights = over;
        config.output = (folder / (over ? "over" : "apart")).string();
        found.push_back(run(config));
    }
    EXPECT_GT(found[0].summary.memory.over_weights.count, 0);
    const auto skipped = std::ranges::count(found[0].steps, true, &StepReport::skipped);
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 12);
    expect_same(found[0], found[1]);
    for (const char* name : {"model/model.safetensors", "checkpoints/step-00000012/state.safetensors"})
        EXPECT_TRUE(read_text(folder / "over" / name) == read_text(folder / "apart" / name)) << name;
}

} // namespace
} // namespace tutti

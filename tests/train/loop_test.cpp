// The training loop around the numbers: schedules, checkpoints, resuming, evaluation, steps that are not finite.
#include "short_run.h"

#include "base/error.h"
#include "checkpoints/checkpoint.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "support/temporary_folder.h"
#include "train/metrics.h"
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <numeric>
#include <sstream>

namespace tutti {

using namespace checkpoints;
using namespace formats;
using namespace offload;
using namespace run;
using namespace test;
using namespace train;
namespace {

TEST(Loop, AskedToStopBeforeItsFirstStepRunsNone) {
    const test::TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    Recorder recorder;
    const std::atomic<bool> stop = true;
    const TrainResult result = train::train(config, recorder, stop);
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.steps_run, 0);
    EXPECT_TRUE(recorder.steps.empty());
    EXPECT_FALSE(fs::exists(folder / "run/checkpoints"));
}

TEST(LearningRate, WarmsUpLinearlyThenFollowsItsSchedule) {
    RunConfig config;
    config.steps = 11;
    config.warmup = 2;
    config.lr = 1;
    config.lr_min = 0.1;
    auto at = [&](LearningRateSchedule schedule, std::int64_t step) {
        config.lr_schedule = schedule;
        return learning_rate(config, step);
    };
    for (auto schedule : {LearningRateSchedule::constant, LearningRateSchedule::linear, LearningRateSchedule::cosine,
                          LearningRateSchedule::warmup_stable_decay}) {
        EXPECT_DOUBLE_EQ(at(schedule, 0), 0.5);
        EXPECT_DOUBLE_EQ(at(schedule, 1), 1);
    }
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::constant, 10), 1);
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::linear, 6), 0.55);
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::linear, 10), 0.1);
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::cosine, 6), 0.55);
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::cosine, 10), 0.1);
    config.decay_share = 0.3; // the last three steps
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::warmup_stable_decay, 7), 1);
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::warmup_stable_decay, 8), 0.7);
    EXPECT_DOUBLE_EQ(at(LearningRateSchedule::warmup_stable_decay, 10), 0.1);
}

TEST(Loop, MicroBatchesDoNotChangeTheLosses) {
    RunConfig whole = short_run();
    whole.workload.micro_batch = 4;
    const std::vector<double> a = losses(short_run()), b = losses(whole);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 3e-6 * a[i]);
}

TEST(Loop, DropoutIsTheSameInAnyMicroBatch) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "made").string();
    config.steps = 1;
    losses(config);
    nlohmann::json json = read_json(folder / "made/model/config.json");
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = 0.2;
    write_text_atomically(folder / "made/model/config.json", json.dump());
    RunConfig dropped = short_run();
    dropped.model = (folder / "made/model").string();
    const std::vector<double> two = losses(dropped);
    dropped.workload.micro_batch = 4;
    const std::vector<double> four = losses(dropped);
    for (std::size_t i = 0; i < two.size(); ++i) EXPECT_NEAR(two[i], four[i], 3e-6 * two[i]);
    dropped.seed = 1;
    EXPECT_NE(losses(dropped)[0], four[0]);
}

TEST(Loop, AnInterruptedRunResumesBitForBit) {
    const TemporaryFolder folder;
    struct Types {
        DType dtype, master = DType::float32, moments = DType::float32, gradients = DType::float32;
    };
    constexpr DType narrow = DType::bfloat16;
    int number = 0;
    for (const Types& types :
         {Types{DType::float32}, Types{narrow}, Types{narrow, narrow, narrow},
          Types{DType::float32, DType::float32, narrow}, Types{narrow, DType::float32, narrow, narrow}}) {
        RunConfig config = short_run();
        config.precision.compute = types.dtype;
        config.precision.master = types.master;
        config.precision.moments = types.moments;
        config.precision.gradients = types.gradients;
        const std::vector<double> whole = losses(config);
        config.output = (folder / std::to_string(number++)).string();
        config.stop_after = 3;
        const std::vector<double> first = losses(config);
        config.stop_after = 0;
        config.resume = true;
        std::vector<double> joined = first;
        for (double loss : losses(config)) joined.push_back(loss);
        EXPECT_EQ(first.size(), 3u);
        EXPECT_EQ(joined, whole);
    }
}

TEST(Loop, Bf16WithoutMasterWeightsAndWithBf16MomentsLearnsAsWell) {
    RunConfig config = short_run();
    config.steps = 60;
    config.precision.compute = DType::bfloat16;
    const std::vector<double> wide = losses(config);
    config.precision.master = config.precision.moments = DType::bfloat16;
    const std::vector<double> narrow = losses(config);
    EXPECT_EQ(narrow[0], wide[0]);
    EXPECT_NE(narrow.back(), wide.back());
    auto last = [](const std::vector<double>& all) { return std::accumulate(all.end() - 10, all.end(), 0.0) / 10; };
    EXPECT_LT(last(wide), 0.7 * wide[0]);
    EXPECT_NEAR(last(narrow), last(wide), 0.02 * last(wide));
}

// With three micro-batches, so that gradients are added up in bf16 as well.
TEST(Loop, Bf16GradientsTrainNearlyAsFloat32OnesDo) {
    RunConfig config = short_run();
    config.steps = 30;
    config.workload.global_batch = 6;
    config.precision.compute = DType::bfloat16;
    Recorder wide, narrow, again;
    trained(config, wide);
    config.precision.gradients = DType::bfloat16;
    trained(config, narrow);
    trained(config, again);
    ASSERT_EQ(narrow.steps.size(), wide.steps.size());
    EXPECT_EQ(narrow.steps[0].loss, wide.steps[0].loss); // before any update
    EXPECT_NE(narrow.steps[0].gradient_norm, wide.steps[0].gradient_norm);
    for (std::size_t i = 0; i < wide.steps.size(); ++i) {
        EXPECT_NEAR(narrow.steps[i].loss, wide.steps[i].loss, 1e-2 * wide.steps[i].loss) << i;
        EXPECT_EQ(again.steps[i].loss, narrow.steps[i].loss) << i;
        EXPECT_EQ(again.steps[i].gradient_norm, narrow.steps[i].gradient_norm) << i;
    }
    EXPECT_NEAR(narrow.steps[0].gradient_norm, wide.steps[0].gradient_norm, 2e-3 * wide.steps[0].gradient_norm);
    EXPECT_LT(narrow.steps.back().loss, 0.9 * narrow.steps[0].loss);
    EXPECT_EQ(wide.summary.memory.gradients, 2 * wide.summary.memory.weights);
    EXPECT_EQ(narrow.summary.memory.gradients, narrow.summary.memory.weights);
}

TEST(Loop, MetricsOfAResumedRunHoldEveryStepOnce) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.metrics = (folder / "m.jsonl").string();
    config.stop_after = 4;
    losses(config);
    // Lines of a run that went further before it was killed, and one cut short.
    folder.write("m.jsonl", read_text(config.metrics) + "{\"step\":5,\"loss\":1}\n{\"step\":6,\"lo");
    config.stop_after = 0;
    config.resume = true;
    losses(config);
    std::istringstream lines(read_text(config.metrics));
    std::string line;
    for (std::int64_t step = 0; step < 6; ++step) {
        ASSERT_TRUE(std::getline(lines, line));
        const auto json = nlohmann::json::parse(line);
        EXPECT_EQ(json["step"], step + 1);
        for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second"})
            EXPECT_TRUE(json[key].is_number()) << key;
    }
    EXPECT_FALSE(std::getline(lines, line));
}

TEST(Loop, OldCheckpointsGoAndADamagedOneIsPassedOver) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.save_every = 1;
    config.keep = 2;
    const std::vector<double> whole = losses(config);
    std::vector<CheckpointInfo> all = list_checkpoints(config.output).readable;
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].state.step, 6);
    EXPECT_EQ(all[1].state.step, 5);
    EXPECT_EQ(all[1].state.samples, 20);

    const fs::path state = all[0].folder / all[0].file;
    std::string bytes = read_text(state);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_text_atomically(state, bytes);
    EXPECT_FALSE(is_intact(all[0]));
    EXPECT_TRUE(is_intact(all[1]));
    config.resume = true;
    Recorder recorder;
    trained(config, recorder);
    EXPECT_EQ(recorder.summary.first_step, 5);
    ASSERT_EQ(recorder.steps.size(), 1u);
    EXPECT_EQ(recorder.steps[0].loss, whole[5]);
    EXPECT_FALSE(recorder.warnings.empty());
}

TEST(Loop, ACheckpointWhoseMetadataWasEditedOrDamagedIsPassedOver) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.save_every = 1;
    config.keep = 3;
    config.stop_after = 3;
    losses(config);
    auto metadata = [&](int step) { return folder / ("run/checkpoints/step-0000000" + std::to_string(step)); };
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(read_text(metadata(3) / "checkpoint.json"));
    json["samples"] = 0; // would feed the first samples again
    write_text_atomically(metadata(3) / "checkpoint.json", json.dump(2));
    write_text_atomically(metadata(2) / "checkpoint.json", "{\"step\": 2");
    // One made before metadata had a checksum.
    json = nlohmann::ordered_json::parse(read_text(metadata(1) / "checkpoint.json"));
    json.erase("checksum");
    write_text_atomically(metadata(1) / "checkpoint.json", json.dump());
    config.resume = true;
    config.stop_after = 1;
    Recorder recorder;
    trained(config, recorder);
    EXPECT_EQ(recorder.summary.first_step, 1);
    std::ranges::sort(recorder.warnings);
    ASSERT_EQ(recorder.warnings.size(), 3u); // the last one says where both are kept
    EXPECT_TRUE(recorder.warnings[0].starts_with((metadata(2) / "checkpoint.json is not JSON").string()));
    EXPECT_EQ(recorder.warnings[1], (metadata(3) / "checkpoint.json").string() +
                                        " was changed after it was written: its checksum differs; this checkpoint is "
                                        "passed over");
}

TEST(Loop, ADamagedCheckpointDoesNotCountAmongThoseThatAreKept) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.stop_after = 1;
    losses(config);
    config.resume = true;
    config.stop_after = 3;
    config.keep = 2;
    losses(config);
    fs::resize_file(folder / "run/checkpoints/step-00000004/state.safetensors", 100);
    config.stop_after = 1;
    config.keep = 1;
    losses(config); // goes on from step 1: the damaged step 4 is set aside, and pushes nothing out
    const std::vector<CheckpointInfo> all = list_checkpoints(config.output).readable;
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].state.step, 2);
    EXPECT_EQ(all[1].state.step, 1); // until a finite step has followed step 2
    EXPECT_TRUE(is_intact(all[0]) && is_intact(all[1]));
    EXPECT_TRUE(fs::exists(folder / "run/checkpoints.old/step-00000004"));
}

// A limit on file sizes stands in for the disk: writing more fails with EFBIG.
class SmallDisk {
  public:
    explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const struct rlimit limited { bytes, before_.rlim_max };
        ::setrlimit(RLIMIT_FSIZE, &limited);
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    ~SmallDisk() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    struct rlimit before_ {};
    void (*handler_)(int);
};

TEST(Loop, WhereOnlyTheModelFitsItIsSavedWithoutACheckpoint) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.steps = 1;
    losses(config);
    const auto model = fs::file_size(folder / "run/model/model.safetensors");
    config.output = (folder / "small").string();
    Recorder recorder;
    {
        const SmallDisk disk(2 * model);
        trained(config, recorder);
    }
    ASSERT_EQ(recorder.warnings.size(), 1u);
    EXPECT_NE(recorder.warnings[0].find("no checkpoint"), std::string::npos);
    EXPECT_EQ(read_text(folder / "small/model/model.safetensors"), read_text(folder / "run/model/model.safetensors"));
    EXPECT_TRUE(fs::is_empty(folder / "small/checkpoints"));
}

TEST(Loop, AFullDiskLeavesThePreviousCheckpointWhole) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.stop_after = 2;
    losses(config);
    config.resume = true;
    config.stop_after = 0;
    config.save_every = 1;
    {
        const SmallDisk disk(100000); // the next checkpoint fails half-way
        EXPECT_THROW(losses(config), WorldError);
    }
    const std::vector<CheckpointInfo> all = list_checkpoints(config.output).readable;
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].state.step, 2);
    EXPECT_TRUE(is_intact(all[0]));
    for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints"))
        EXPECT_FALSE(entry.path().string().ends_with(".tmp"));
}

TEST(Loop, AFinishedRunCanBeMadeLonger) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.lr_schedule = LearningRateSchedule::constant;
    const std::vector<double> whole = losses(config);
    config.output = (folder / "run").string();
    config.steps = 4;
    std::vector<double> joined = losses(config);
    config.steps = 6;
    config.resume = true;
    Recorder longer;
    trained(config, longer);
    for (const StepReport& step : longer.steps) joined.push_back(step.loss);
    EXPECT_EQ(joined, whole);
    ASSERT_EQ(longer.warnings.size(), 1u); // of the model that was there
    EXPECT_NE(longer.warnings[0].find("model.old"), std::string::npos);
}

TEST(Loop, AFinishedRunMakesRoomForAnotherAndIsKept) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.steps = 2;
    config.output = (folder / "run").string();
    const std::vector<double> first = losses(config);
    Recorder again;
    trained(config, again);
    EXPECT_EQ(again.steps[0].loss, first[0]);
    const std::string run = folder / "run";
    ASSERT_EQ(again.warnings.size(), 2u);
    EXPECT_EQ(again.warnings[0], "the checkpoints that were in " + run + "/checkpoints are kept as " + run +
                                     "/checkpoints.old; remove them if you do not need them");
    EXPECT_EQ(again.warnings[1], "the model that was in " + run + "/model is kept as " + run + "/model.old");
    losses(config);
    for (const char* name : {"checkpoints", "checkpoints.old", "checkpoints.old-2"})
        EXPECT_TRUE(is_intact(inspect_checkpoint(folder / "run" / name / "step-00000002"))) << name;
    for (const char* name : {"model", "model.old", "model.old-2"})
        EXPECT_TRUE(fs::exists(folder / "run" / name / "model.safetensors")) << name;
}

TEST(Loop, EvaluationLooksAtHeldOutSamplesAndChangesNothing) {
    RunConfig config = short_run();
    const std::vector<double> plain = losses(config);
    config.eval_every = 2;
    config.eval_batches = 3;
    Recorder recorder;
    trained(config, recorder);
    ASSERT_EQ(recorder.evaluations.size(), 3u);
    EXPECT_EQ(std::ranges::count(recorder.waits, "evaluating after step 4"), 1);
    EXPECT_NEAR(recorder.evaluations[0], 5.5, 1.0);
    EXPECT_LT(recorder.evaluations[2], recorder.evaluations[0]);
    // Held-out samples shorten the training set, so the order differs; but evaluating more often must not matter.
    config.eval_every = 3;
    Recorder other;
    trained(config, other);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(recorder.steps[i].loss, other.steps[i].loss);
}

TEST(Loop, StepsThatAreNotFiniteChangeNothingAndEndTheRunWithTheirPlace) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "made").string();
    config.steps = 1;
    losses(config);
    // Poison one weight.
    const fs::path weights = folder / "made/model/model.safetensors";
    std::string bytes = read_text(weights);
    const SafetensorsFile file(weights);
    const TensorEntry* entry = file.find("transformer.h.2.mlp.c_fc.weight");
    ASSERT_NE(entry, nullptr);
    const float bad = std::numeric_limits<float>::max(); // it may be read, but its matmuls are not finite
    std::memcpy(bytes.data() + entry->begin, &bad, sizeof bad);
    write_text_atomically(weights, bytes);

    RunConfig poisoned = short_run();
    poisoned.model = (folder / "made/model").string();
    poisoned.non_finite_limit = 3;
    Recorder recorder;
    const std::string sentence = test::error_of([&] { trained(poisoned, recorder); });
    EXPECT_NE(sentence.find("step 3"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("transformer.h.2.mlp"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("micro-batch 0"), std::string::npos) << sentence;
    ASSERT_GE(recorder.steps.size(), 3u);
    EXPECT_LE(recorder.steps.size(), 4u); // a GPU has begun the next step by then
    for (const StepReport& step : recorder.steps) EXPECT_TRUE(step.skipped);
    // Nor does anything change where updates do not wait for the norm: the loss is known before the first of them.
    poisoned.non_finite_limit = 100;
    poisoned.steps = 3;
    poisoned.clip = 0;
    std::vector<std::string> states;
    for (const UpdateTime updates : {UpdateTime::end, UpdateTime::backward}) {
        poisoned.updates = updates;
        poisoned.output = (folder / std::string(name_of(updates))).string();
        trained(poisoned, recorder);
        states.push_back(read_text(fs::path(poisoned.output) / "checkpoints/step-00000003/state.safetensors"));
    }
    EXPECT_TRUE(states[0] == states[1]);
}

TEST(Loop, TheSavedModelGivesTheLossesOfTheRunThatMadeIt) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.output = (folder / "run").string();
    config.lr = 0;
    const std::vector<double> first = losses(config);
    RunConfig again = short_run();
    again.lr = 0;
    again.model = (folder / "run/model").string();
    EXPECT_EQ(losses(again), first);
}

TEST(Loop, TheMemoryTableHoldsWhatTheProgramNeedsBeforeItIsAllocated) {
    RunConfig config = short_run();
    config.dry_run = true;
    Recorder recorder;
    trained(config, recorder);
    const MemoryTable& memory = recorder.summary.memory;
    EXPECT_GE(memory.weights.count, 4 * recorder.summary.parameters);
    EXPECT_EQ(memory.gradients, memory.weights);
    EXPECT_EQ(memory.moments, 2 * memory.weights);
    EXPECT_EQ(memory.master, Bytes{});
    EXPECT_GT(memory.activations.count, 0);
    EXPECT_TRUE(recorder.steps.empty());
}

TEST(Loop, MetricsOfAnEarlierRunAreNeverGone) {
    const TemporaryFolder folder;
    RunConfig config = short_run();
    config.metrics = (folder / "metrics.jsonl").string();
    Recorder recorder;
    trained(config, recorder);
    { const Metrics resumed(config, 4, recorder); } // killed before its first step
    const std::string kept = read_text(folder / "metrics.jsonl");
    EXPECT_EQ(std::ranges::count(kept, '\n'), 4) << kept;
}

// An llm.c file whose last tokens are none of the model's.
std::string tokens_with_a_bad_end(int count) {
    std::vector<std::int32_t> header(256);
    header[0] = 20240520, header[1] = 1, header[2] = count;
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count), 65);
    std::fill(tokens.end() - 20, tokens.end(), std::uint16_t{300});
    std::string bytes(reinterpret_cast<const char*>(header.data()), header.size() * sizeof header[0]);
    return bytes + std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof tokens[0]);
}

TEST(Loop, AnErrorOnTheWayLeavesACheckpoint) {
    const TemporaryFolder folder;
    folder.write("tokens.bin", tokens_with_a_bad_end(1000));
    RunConfig config = short_run();
    config.data = (folder / "tokens.bin").string();
    config.steps = 40;
    config.output = (folder / "out").string();
    Recorder recorder;
    EXPECT_THROW(trained(config, recorder), Error);
    ASSERT_GT(recorder.steps.size(), 0u);
    const CheckpointList list = list_checkpoints(config.output);
    ASSERT_EQ(list.readable.size(), 1u);
    EXPECT_EQ(list.readable[0].state.step, static_cast<std::int64_t>(recorder.steps.size()));
}

} // namespace
} // namespace tutti

// The training loop around the numbers: schedules, checkpoints, resuming, evaluation, steps that are not finite.
#include "base/error.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <numeric>
#include <sstream>

namespace tutti {
namespace {

using test::TemporaryFolder;

struct Recorder : TrainListener {
    std::vector<StepReport> steps;
    std::vector<double> evaluations;
    std::vector<std::string> warnings, saves;
    RunSummary summary;
    void warning(const std::string& text) override { warnings.push_back(text); }
    void planned(const RunSummary& planned) override { summary = planned; }
    void stepped(const StepReport& report) override { steps.push_back(report); }
    void evaluated(std::int64_t, double loss) override { evaluations.push_back(loss); }
    void saved(const std::string& folder) override { saves.push_back(folder); }
};

RunConfig small_run() {
    RunConfig config;
    config.model = "gpt2-tiny";
    config.steps = 6;
    config.sequence = 16;
    config.global_batch = 4;
    config.micro_batch = 2;
    config.threads = 2;
    return config;
}

TrainResult run(const RunConfig& config, Recorder& recorder) {
    const std::atomic<bool> stop = false;
    return train(config, recorder, stop);
}

std::vector<double> losses(const RunConfig& config) {
    Recorder recorder;
    run(config, recorder);
    std::vector<double> all;
    for (const StepReport& step : recorder.steps) all.push_back(step.loss);
    return all;
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
    RunConfig whole = small_run();
    whole.micro_batch = 4;
    const std::vector<double> a = losses(small_run()), b = losses(whole);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 3e-6 * a[i]);
}

TEST(Loop, DropoutIsTheSameInAnyMicroBatch) {
    const TemporaryFolder folder;
    RunConfig config = small_run();
    config.output = (folder / "made").string();
    config.steps = 1;
    losses(config);
    nlohmann::json json = read_json(folder / "made/model/config.json");
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = 0.2;
    write_text_atomically(folder / "made/model/config.json", json.dump());
    RunConfig dropped = small_run();
    dropped.model = (folder / "made/model").string();
    const std::vector<double> two = losses(dropped);
    dropped.micro_batch = 4;
    const std::vector<double> four = losses(dropped);
    for (std::size_t i = 0; i < two.size(); ++i) EXPECT_NEAR(two[i], four[i], 3e-6 * two[i]);
    dropped.seed = 1;
    EXPECT_NE(losses(dropped)[0], four[0]);
}

TEST(Loop, AnInterruptedRunResumesBitForBit) {
    const TemporaryFolder folder;
    struct Types {
        DType dtype, master = DType::float32, moments = DType::float32;
    };
    constexpr DType narrow = DType::bfloat16;
    int number = 0;
    for (const Types& types : {Types{DType::float32}, Types{narrow}, Types{narrow, narrow, narrow},
                               Types{DType::float32, DType::float32, narrow}}) {
        RunConfig config = small_run();
        config.dtype = types.dtype;
        config.master = types.master;
        config.moments = types.moments;
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
    RunConfig config = small_run();
    config.steps = 60;
    config.dtype = DType::bfloat16;
    const std::vector<double> wide = losses(config);
    config.master = config.moments = DType::bfloat16;
    const std::vector<double> narrow = losses(config);
    EXPECT_EQ(narrow[0], wide[0]);
    EXPECT_NE(narrow.back(), wide.back());
    auto last = [](const std::vector<double>& all) { return std::accumulate(all.end() - 10, all.end(), 0.0) / 10; };
    EXPECT_LT(last(wide), 0.7 * wide[0]);
    EXPECT_NEAR(last(narrow), last(wide), 0.02 * last(wide));
}

TEST(Loop, PrecisionsThatDoNotFitTogetherAreRefused) {
    RunConfig config = small_run();
    config.master = DType::bfloat16;
    EXPECT_ERROR(losses(config), "--dtype bf16");
    config.master = DType::float32;
    config.dtype = DType::float64;
    config.moments = DType::bfloat16;
    EXPECT_ERROR(losses(config), "float64");
}

TEST(Loop, MetricsOfAResumedRunHoldEveryStepOnce) {
    const TemporaryFolder folder;
    RunConfig config = small_run();
    config.output = (folder / "run").string();
    config.metrics = (folder / "m.jsonl").string();
    config.stop_after = 4;
    losses(config);
    // Lines of a run that went further before it was killed, and one cut short.
    folder.write("m.jsonl", read_text(config.metrics) + "{\"step\":4,\"loss\":1}\n{\"step\":5,\"lo");
    config.stop_after = 0;
    config.resume = true;
    losses(config);
    std::istringstream lines(read_text(config.metrics));
    std::string line;
    for (std::int64_t step = 0; step < 6; ++step) {
        ASSERT_TRUE(std::getline(lines, line));
        const auto json = nlohmann::json::parse(line);
        EXPECT_EQ(json["step"], step);
        for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second"})
            EXPECT_TRUE(json[key].is_number()) << key;
    }
    EXPECT_FALSE(std::getline(lines, line));
}

TEST(Loop, OldCheckpointsGoAndADamagedOneIsPassedOver) {
    const TemporaryFolder folder;
    RunConfig config = small_run();
    config.output = (folder / "run").string();
    config.save_every = 1;
    config.keep = 2;
    const std::vector<double> whole = losses(config);
    std::vector<CheckpointInfo> all = list_checkpoints(config.output);
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
    run(config, recorder);
    EXPECT_EQ(recorder.summary.first_step, 5);
    ASSERT_EQ(recorder.steps.size(), 1u);
    EXPECT_EQ(recorder.steps[0].loss, whole[5]);
    EXPECT_FALSE(recorder.warnings.empty());
}

TEST(Loop, AFullDiskLeavesThePreviousCheckpointWhole) {
    const TemporaryFolder folder;
    RunConfig config = small_run();
    config.output = (folder / "run").string();
    config.stop_after = 2;
    losses(config);
    // A limit on file sizes stands in for the disk: writing the next checkpoint fails half-way with EFBIG.
    config.resume = true;
    config.stop_after = 0;
    config.save_every = 1;
    struct rlimit before {};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const struct rlimit limited { 100000, before.rlim_max };
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limited);
    EXPECT_THROW(losses(config), WorldError);
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    const std::vector<CheckpointInfo> all = list_checkpoints(config.output);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].state.step, 2);
    EXPECT_TRUE(is_intact(all[0]));
    for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints"))
        EXPECT_FALSE(entry.path().string().ends_with(".tmp"));
}

TEST(Loop, ACheckpointOfAnotherModelOrSeedIsRefused) {
    const TemporaryFolder folder;
    RunConfig config = small_run();
    config.output = (folder / "run").string();
    config.stop_after = 1;
    losses(config);
    EXPECT_ERROR(losses(config), "--resume");
    config.resume = true;
    config.seed = 9;
    EXPECT_ERROR(losses(config), "seed 0");
    config.seed = 0;
    config.model = "llama-tiny";
    EXPECT_ERROR(losses(config), "another model");
}

TEST(Loop, EvaluationLooksAtHeldOutSamplesAndChangesNothing) {
    RunConfig config = small_run();
    const std::vector<double> plain = losses(config);
    config.eval_every = 2;
    config.eval_batches = 3;
    Recorder recorder;
    run(config, recorder);
    ASSERT_EQ(recorder.evaluations.size(), 3u);
    EXPECT_NEAR(recorder.evaluations[0], 5.5, 1.0);
    EXPECT_LT(recorder.evaluations[2], recorder.evaluations[0]);
    // Held-out samples shorten the training set, so the order differs; but evaluating more often must not matter.
    config.eval_every = 3;
    Recorder other;
    run(config, other);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(recorder.steps[i].loss, other.steps[i].loss);
}

TEST(Loop, StepsThatAreNotFiniteChangeNothingAndEndTheRunWithTheirPlace) {
    const TemporaryFolder folder;
    RunConfig config = small_run();
    config.output = (folder / "made").string();
    config.steps = 1;
    losses(config);
    // Poison one weight.
    const fs::path weights = folder / "made/model/model.safetensors";
    std::string bytes = read_text(weights);
    const SafetensorsFile file(weights);
    const TensorEntry* entry = file.find("transformer.h.2.mlp.c_fc.weight");
    ASSERT_NE(entry, nullptr);
    const float bad = std::numeric_limits<float>::infinity();
    std::memcpy(bytes.data() + entry->begin, &bad, sizeof bad);
    write_text_atomically(weights, bytes);

    RunConfig poisoned = small_run();
    poisoned.model = (folder / "made/model").string();
    poisoned.non_finite_limit = 3;
    Recorder recorder;
    const std::string sentence = test::error_of([&] { run(poisoned, recorder); });
    EXPECT_NE(sentence.find("step 2"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("transformer.h.2.mlp"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("micro-batch 0"), std::string::npos) << sentence;
    ASSERT_EQ(recorder.steps.size(), 3u);
    for (const StepReport& step : recorder.steps) EXPECT_TRUE(step.skipped);
}

TEST(Loop, TheSavedModelGivesTheLossesOfTheRunThatMadeIt) {
    const TemporaryFolder folder;
    RunConfig config = small_run();
    config.output = (folder / "run").string();
    config.lr = 0;
    const std::vector<double> first = losses(config);
    RunConfig again = small_run();
    again.lr = 0;
    again.model = (folder / "run/model").string();
    EXPECT_EQ(losses(again), first);
}

TEST(Loop, TheMemoryTableHoldsWhatTheProgramNeedsBeforeItIsAllocated) {
    RunConfig config = small_run();
    config.dry_run = true;
    Recorder recorder;
    run(config, recorder);
    const MemoryTable& memory = recorder.summary.memory;
    EXPECT_GE(memory.weights.count, 4 * recorder.summary.parameters);
    EXPECT_EQ(memory.gradients, memory.weights);
    EXPECT_EQ(memory.moments, 2 * memory.weights);
    EXPECT_EQ(memory.master, Bytes{});
    EXPECT_GT(memory.activations.count, 0);
    EXPECT_TRUE(recorder.steps.empty());
}

TEST(Loop, NumbersThatMakeNoSenseAreNamed) {
    static const std::string references_bert = (fs::path(TUTTI_TEST_DATA) / "references/bert").string();
    auto with = [](auto change) {
        RunConfig config = small_run();
        change(config);
        return test::error_of([&] { losses(config); });
    };
    EXPECT_NE(with([](RunConfig& c) { c.lr = std::nan(""); }).find("lr"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.steps = 0; }).find("steps"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.micro_batch = 3; }).find("multiple of micro_batch 3"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.beta2 = 1; }).find("beta2"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.sequence = 100000; }).find("positions"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.device = "tpu"; }).find("cpu and reference"), std::string::npos);
    EXPECT_NE(with([](RunConfig& c) { c.model = references_bert; }).find("--mask-token"), std::string::npos);
}

} // namespace
} // namespace tutti

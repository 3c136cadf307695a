// Which checkpoints a run leaves behind, whatever ends it: a divergence, bad data, a full disk, a kill.
#include "base/error.h"
#include "checkpoints/old_checkpoints.h"
#include "run/run_folder.h"
#include "support/recorder.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"
#include "train/metrics.h"
#include "train/trainer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <iterator>

namespace tutti {

using namespace checkpoints;
using namespace run;
using namespace test;
using namespace train;
namespace {

using test::Recorder;
using test::TemporaryFolder;

RunConfig small_run(const TemporaryFolder& folder) {
    RunConfig config;
    config.model = "gpt2-tiny";
    config.steps = 60;
    config.workload.sequence = 8;
    config.workload.global_batch = 2;
    config.threads = 1;
    config.lr_schedule = LearningRateSchedule::constant;
    config.device = test::device_to_test();
    config.output = (folder / "run").string();
    return config;
}

Recorder run(const RunConfig& config) {
    Recorder recorder;
    const std::atomic<bool> stop = false;
    train::train(config, recorder, stop);
    return recorder;
}

std::vector<std::int64_t> steps_in(const fs::path& run) {
    std::vector<std::int64_t> steps;
    for (const CheckpointInfo& info : list_checkpoints(run).readable) {
        EXPECT_TRUE(is_intact(info)) << info.folder;
        steps.push_back(info.state.step);
    }
    return steps;
}

using Steps = std::vector<std::int64_t>;

class SoftLimit {
  public:
    SoftLimit(decltype(RLIMIT_FSIZE) what, rlim_t most) : what_(what), handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(what_, &before_);
        const struct rlimit limited { most, before_.rlim_max };
        ::setrlimit(what_, &limited);
    }
    SoftLimit(const SoftLimit&) = delete;
    SoftLimit& operator=(const SoftLimit&) = delete;
    ~SoftLimit() {
        ::setrlimit(what_, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    decltype(RLIMIT_FSIZE) what_;
    struct rlimit before_ {};
    void (*handler_)(int);
};

// Both divergences used to be saved as progress, and took the place of step 20.
TEST(Saving, ADivergedRunKeepsTheCheckpointThatFiniteStepsFollowed) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.save_every = 10;
    config.stop_after = 20;
    run(config);
    ASSERT_EQ(steps_in(config.output), (Steps{20, 10}));
    config.resume = true;
    config.stop_after = 0;
    RunConfig diverging = config;
    diverging.lr = 1e30;
    for (int i = 0; i < 2; ++i) {
        const std::string sentence = test::error_of([&] { run(diverging); });
        EXPECT_NE(sentence.find("--resume-from 20, the newest checkpoint that a finite step followed"),
                  std::string::npos)
            << sentence;
        // From the second on it is known that the newest is bad.
        EXPECT_EQ(sentence.find("--resume goes on from step") == std::string::npos, i > 0) << sentence;
        EXPECT_EQ(sentence.find("itself gives no finite loss: only --resume-from 20") != std::string::npos, i > 0)
            << sentence;
        const Steps left = steps_in(config.output);
        ASSERT_EQ(left.size(), 2u);
        EXPECT_EQ(left[1], 20);
        EXPECT_LT(left[0], 26); // of the last finite step, not of the fifth bad one
    }
    // Back to it: what is newer is kept elsewhere, and the new line of progress is what --resume goes on with.
    const Steps diverged = steps_in(config.output);
    config.resume = false;
    config.resume_from = 20;
    config.stop_after = 2;
    const Recorder back = run(config);
    EXPECT_EQ(back.summary.first_step, 20);
    ASSERT_EQ(back.warnings.size(), 1u);
    EXPECT_NE(back.warnings[0].find("checkpoints.old"), std::string::npos) << back.warnings[0];
    EXPECT_EQ(steps_in(config.output), (Steps{22, 20}));
    EXPECT_TRUE(is_intact(inspect_checkpoint(folder / "run/checkpoints.old" / fmt::format("step-{:08}", diverged[0]))));
    config.resume = true;
    config.resume_from = 0;
    EXPECT_EQ(run(config).summary.first_step, 22);
}

// It used to advise a lower learning rate and to go on from that very checkpoint, for ever.
TEST(Saving, ADivergenceThatIsInTheCheckpointItselfIsToldOnEveryResume) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.save_every = 2;
    config.lr = 1e30;
    const std::string first = test::error_of([&] { run(config); });
    EXPECT_NE(first.find("A lower learning rate or --clip may help; --resume goes on from step "), std::string::npos)
        << first;
    const Steps saved = steps_in(config.output);
    ASSERT_FALSE(saved.empty());
    config.resume = true;
    config.lr = 1e-3;
    for (int i = 0; i < 2; ++i) {
        const std::string sentence = test::error_of([&] { run(config); });
        EXPECT_TRUE(sentence.ends_with(fmt::format(". The checkpoint of step {} itself gives no finite loss: only a "
                                                   "new run in another --output helps",
                                                   saved[0])))
            << sentence;
    }
}

TEST(Saving, OneThatIsAskedForHasToBeThere) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.save_every = 1;
    config.stop_after = 2;
    run(config);
    config.resume_from = 7;
    EXPECT_ERROR(run(config), "holds no checkpoint of that step, but of 1, 2");
    fs::resize_file(folder / "run/checkpoints/step-00000001/state.safetensors", 100);
    config.resume_from = 1;
    EXPECT_ERROR(run(config), "step-00000001 is damaged");
    EXPECT_EQ(list_checkpoints(config.output).readable.size(), 2u);
    config.output.clear();
    config.save_every = 0;
    EXPECT_ERROR(run(config), "resume_from needs the run's folder");
}

TEST(Saving, TheLastButOneStaysUntilAFiniteStepHasFollowedTheLast) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.save_every = 2;
    config.keep = 1;
    config.stop_after = 4;
    run(config);
    EXPECT_EQ(steps_in(config.output), (Steps{4, 2}));
    config.save_every = 0;
    config.resume = true;
    config.stop_after = 1;
    run(config);
    EXPECT_EQ(steps_in(config.output), (Steps{5, 4})); // 2 went after step 5
}

void write_metadata(const TemporaryFolder& folder, std::int64_t step, std::int64_t skipped) {
    const nlohmann::json json = {{"tutti_checkpoint", 1},
                                 {"step", step},
                                 {"samples", 2 * step},
                                 {"seed", 0},
                                 {"skipped", skipped},
                                 {"model", "0123456789abcdef"},
                                 {"files", {{"state.safetensors", "0123456789abcdef"}}}};
    fs::create_directories(folder / fmt::format("checkpoints/step-{:08}", step));
    folder.write(fmt::format("checkpoints/step-{:08}/checkpoint.json", step), json.dump());
}

// As they were saved before: 30 and 31 hold the weights of step 21.
TEST(OldCheckpoints, ThoseBetweenWhichNoFiniteStepLiesCountOnce) {
    const TemporaryFolder folder;
    auto steps = [&] {
        Steps all;
        for (const CheckpointInfo& info : list_checkpoints(folder.path()).readable) all.push_back(info.state.step);
        return all;
    };
    for (std::int64_t step : {5, 10, 20}) write_metadata(folder, step, 0);
    write_metadata(folder, 30, 9);
    write_metadata(folder, 31, 10);
    EXPECT_EQ(confirmed_step(folder.path()), 20);
    remove_old_checkpoints(folder.path(), 3, false);
    EXPECT_EQ(steps(), (Steps{31, 30, 20, 10}));
    remove_old_checkpoints(folder.path(), 1, false);
    EXPECT_EQ(steps(), (Steps{31, 30, 20}));
    remove_old_checkpoints(folder.path(), 1, true);
    EXPECT_EQ(steps(), (Steps{31, 30}));
    EXPECT_EQ(confirmed_step(folder.path()), std::nullopt);
}

TEST(OldCheckpoints, WhatAKilledRunLeftGoesWithTheNextAndNothingElse) {
    const TemporaryFolder folder;
    for (const char* name : {"step-00000004.tmp", "removed-step-00000002", "removed-notes", "mine.tmp"}) {
        fs::create_directories(folder / "run/checkpoints" / name);
        folder.write(fmt::format("run/checkpoints/{}/state.safetensors", name), "half");
    }
    RunConfig config = small_run(folder);
    config.steps = 1;
    EXPECT_TRUE(run(config).warnings.empty());
    std::vector<std::string> names;
    for (const fs::path& entry : entries_of(folder / "run/checkpoints")) names.push_back(entry.filename().string());
    EXPECT_EQ(names, (std::vector<std::string>{"mine.tmp", "removed-notes", "step-00000001"}));
}

TEST(Saving, WhatCannotBeReadNowIsNotTakenForDamaged) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.save_every = 1;
    config.stop_after = 2;
    run(config);
    {
        const SoftLimit no_files(RLIMIT_NOFILE, 3);
        EXPECT_THROW(list_checkpoints(config.output), WorldError);
        EXPECT_THROW(inspect_checkpoint(folder / "run/checkpoints/step-00000002"), WorldError);
        EXPECT_THROW(RunLock lock(config.output), WorldError);
    }
    config.resume = true;
    fs::rename(folder / "run/checkpoints", folder / "all");
    fs::create_symlink("checkpoints", folder / "run/checkpoints"); // a loop
    EXPECT_ERROR(list_checkpoints(config.output), "cannot list");
    EXPECT_ERROR(run(config), "cannot look at " + (folder / "run/checkpoints").string());
    EXPECT_FALSE(fs::exists(folder / "run/model"));
}

// Each of these stopped every --resume, with an older whole checkpoint beside it.
TEST(Saving, WhatIsNoFileWhereARunLeavesOneIsDamagedAndPassedOver) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.save_every = 1;
    config.stop_after = 2;
    run(config);
    config.resume = true;
    config.stop_after = 1;
    const fs::path checkpoint = folder / "run/checkpoints/step-00000002";
    const std::function<void(const fs::path&)> ways[] = {
        [](const fs::path& path) { fs::create_directory(path); },
        [](const fs::path& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); },
        [](const fs::path& path) { fs::create_symlink(path.filename(), path); },
    };
    for (const char* file : {"state.safetensors", "checkpoint.json"})
        for (std::size_t way = 0; way < std::size(ways); ++way) {
            SCOPED_TRACE(fmt::format("{} in way {}", file, way));
            fs::remove(checkpoint / file);
            ways[way](checkpoint / file);
            const Recorder recorder = run(config);
            EXPECT_EQ(recorder.summary.first_step, 1);
            ASSERT_EQ(recorder.warnings.size(), 2u);
            EXPECT_TRUE(recorder.warnings[0].starts_with(checkpoint.string())) << recorder.warnings[0];
            EXPECT_NE(recorder.warnings[0].find("passed over"), std::string::npos) << recorder.warnings[0];
            EXPECT_NE(recorder.warnings[1].find("checkpoints.old"), std::string::npos) << recorder.warnings[1];
            EXPECT_EQ(steps_in(config.output), (Steps{2, 1}));
        }
    fs::create_symlink("step-00000009", folder / "run/checkpoints/step-00000009");
    const Recorder recorder = run(config);
    EXPECT_EQ(recorder.summary.first_step, 2);
    ASSERT_EQ(recorder.warnings.size(), 2u);
    EXPECT_NE(recorder.warnings[0].find("step-00000009/checkpoint.json is a link that leads in a circle"),
              std::string::npos)
        << recorder.warnings[0];
}

// It used to run to the end before it found that out.
TEST(Saving, WhatIsInTheWayOfCheckpointsIsToldBeforeTheFirstStep) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.steps = 1;
    fs::create_directory(config.output);
    const fs::path checkpoints = folder / "run/checkpoints";
    const std::string told = "cannot make the folder " + checkpoints.string() + ": there is a file of that name";
    folder.write("run/checkpoints", "mine");
    EXPECT_EQ(test::error_of([&] { run(config); }), told);
    EXPECT_EQ(read_text(checkpoints), "mine");
    fs::remove(checkpoints);
    fs::create_symlink("nowhere", checkpoints);
    EXPECT_EQ(test::error_of([&] { run(config); }), told);
    EXPECT_FALSE(fs::exists(folder / "run/model"));
}

TEST(Saving, ARunThatHasCheckpointsDoesNotStartAtStepZeroBecauseAllAreDamaged) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.stop_after = 2;
    run(config);
    fs::resize_file(folder / "run/checkpoints/step-00000002/state.safetensors", 100);
    config.resume = true;
    EXPECT_ERROR(run(config), "holds 1 checkpoint, and none of them is whole");
    EXPECT_TRUE(fs::exists(folder / "run/checkpoints/step-00000002"));
}

TEST(Metrics, ADiskThatIsFullIsToldOnceForEachRecordAndNothingEnds) {
    const TemporaryFolder folder;
    RunConfig config;
    config.output = (folder / "run").string();
    config.metrics = (folder / "m.jsonl").string();
    Recorder recorder;
    Metrics metrics(config, 0, recorder);
    {
        const SoftLimit full(RLIMIT_FSIZE, 200);
        StepReport report;
        for (report.step = 0; report.step < 5; ++report.step) metrics.step(report);
        metrics.evaluation(5, 1);
    }
    ASSERT_EQ(recorder.warnings.size(), 2u);
    const std::string both = recorder.warnings[0] + recorder.warnings[1];
    EXPECT_NE(both.find("m.jsonl: File too large; the run goes on"), std::string::npos) << both;
    EXPECT_NE(both.find("the run goes on without it"), std::string::npos) << both;
}

TEST(Saving, NeitherMetricsNorATraceThatCannotBeWrittenEndARun) {
    const TemporaryFolder folder;
    RunConfig config = small_run(folder);
    config.output.clear();
    config.steps = 6;
    config.metrics = (folder / "m.jsonl").string();
    config.trace = (folder / "t.json").string();
    const SoftLimit full(RLIMIT_FSIZE, 500);
    const Recorder recorder = run(config);
    EXPECT_EQ(recorder.steps.size(), 6u);
    ASSERT_EQ(recorder.warnings.size(), 2u);
    EXPECT_NE((recorder.warnings[0] + recorder.warnings[1]).find("the trace is lost"), std::string::npos);
}

// What a listener throws must not take the steps with it.
struct Failing : Recorder {
    void stepped(const StepReport& report) override {
        Recorder::stepped(report);
        if (steps.size() == 3) throw WorldError("nobody listens");
    }
};

TEST(Saving, WhateverEndsARunTheStepsBeforeAreSavedAndToldAbout) {
    const TemporaryFolder folder;
    const RunConfig config = small_run(folder);
    Failing listener;
    const std::atomic<bool> stop = false;
    std::string sentence;
    try {
        train::train(config, listener, stop);
    } catch (const WorldError& error) {
        sentence = error.what();
    }
    const Steps steps = steps_in(config.output);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_GE(steps[0], 3);
    EXPECT_EQ(sentence, fmt::format("nobody listens; --resume goes on from step {}", steps[0]));
    const RunConfig other = [&] {
        RunConfig bad = config;
        bad.output = (folder / "other").string();
        bad.save_every = 2;
        return bad;
    }();
    const SoftLimit full(RLIMIT_FSIZE, 100000); // no checkpoint fits
    try {
        run(other);
        FAIL();
    } catch (const WorldError& error) {
        EXPECT_TRUE(std::string(error.what()).ends_with("; nothing was saved")) << error.what();
    }
}

} // namespace
} // namespace tutti

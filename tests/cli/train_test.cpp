// Whole runs: what they print and write, and that stopping and resuming changes nothing.
#include "program.h"
#include "run/run_options.h"

#include <sys/resource.h>

#include <chrono>
#include <thread>

namespace tutti::test {

using namespace formats;
using namespace run;
namespace {

Words small_run(const Words& more) {
    // One thread: threads that wait for each other are slow on a machine with other work.
    Words words = {"train",         gpt2,       "--sequence", "16", "--global-batch", "4",
                   "--lr-schedule", "constant", "--threads",  "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

TEST(Train, DryRunShowsPlanAndMemoryAndWritesNothing) {
    const TemporaryFolder folder;
    const Outcome text =
        tutti_with(small_run({"--micro-batch", "2", "--dry-run", "--output", (folder / "run").string()}));
    EXPECT_EQ(text.status, 0) << text.errors;
    for (const char* part : {"weights", "gradients", "moments", "activations", "workspace", "libraries", "total",
                             "2 micro-batches of 2 sequences", "220,544 parameters", "lr_schedule constant"})
        EXPECT_NE(text.output.find(part), std::string::npos) << part << "\n" << text.output;
    EXPECT_FALSE(fs::exists(folder / "run"));

    const Outcome json = tutti_with(small_run({"--micro-batch", "2", "--dry-run", "--json"}));
    const auto lines = json_lines(json.output);
    ASSERT_EQ(lines.size(), 1u);
    const auto& summary = lines[0].at("summary");
    EXPECT_EQ(summary.at("parameters"), 220544);
    EXPECT_EQ(summary.at("batches_per_step"), 2);
    EXPECT_EQ(summary.at("tokens_per_step"), 64);
    EXPECT_EQ(summary.at("plan").at("workload").at("micro_batch"), 2);
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : summary.at("memory_bytes").items())
        if (name != "total") sum += bytes.get<std::int64_t>();
    EXPECT_EQ(summary.at("memory_bytes").at("total"), sum);
}

// The figures are those that a run on an H200 had (bench/results/2026-11-16-offload-h200-2.md, 7b-100%-32k); what
// libraries take there differs by some MiB from run to run.
TEST(Train, DryRunShowsTheTableOfAGpuThatIsNotHere) {
    const Words words = {"train",      "llama2-7b",     "--gpu",       "h200",    "--dry-run",
                         "--sequence", "2048",          "--recompute", "full",    "--global-batch",
                         "16",         "--micro-batch", "8",           "--dtype", "bf16"};
    Words json = words;
    json.emplace_back("--json");
    const Outcome outcome = tutti_with(json);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const auto memory = json_lines(outcome.output).at(0).at("summary").at("memory_bytes");
    EXPECT_EQ(memory.at("weights"), 13476831232);
    EXPECT_EQ(memory.at("gradients"), 26953662464);
    EXPECT_EQ(memory.at("master"), 26953662464);
    EXPECT_EQ(memory.at("moments"), 53907324928);
    EXPECT_EQ(memory.at("activations"), 10661986560);
    EXPECT_EQ(memory.at("buffers"), 1573632);
    EXPECT_EQ(memory.at("workspace"), 2149581056);
    EXPECT_NEAR(memory.at("libraries"), 574160896, 25e6);
    const Outcome text = tutti_with(words);
    EXPECT_NE(text.output.find("cuda (h200, not here)"), std::string::npos) << text.output;
    EXPECT_EQ(text.errors.find("would"), std::string::npos) << text.errors; // it fits
}

// The table comes first, then what would fit.
TEST(Train, DryRunOfWhatDoesNotFitShowsTheTableAndWhatWould) {
    auto expect_parts = [](const Words& words, const char* advice) {
        const Outcome outcome = tutti_with(words);
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        for (const char* part : {"weights", "activations", "total"})
            EXPECT_NE(outcome.output.find(part), std::string::npos) << part << outcome.output;
        EXPECT_NE(outcome.errors.find(advice), std::string::npos) << outcome.errors;
    };
    const Words large = {"train",          "gpt2-large", "--dry-run", "--sequence", "1024",
                         "--global-batch", "32",         "--gpu",     "rtx3090"};
    expect_parts(large, ". --micro-batch 2 would need 17.84 GiB and fit");
    EXPECT_EQ(tutti_with(large).errors.find("kernels"), std::string::npos); // an RTX 3090 has them
    expect_parts(
        {"train", "gpt2", "--dry-run", "--gpu", "v100-16", "--global-batch", "64"},
        "kernels are for GPUs since Ampere (compute capability 8.0): the table is what a run would take on v100-16");
    expect_parts({"train", "llama-1b", "--dry-run", "--gpu", "rtx3090", "--sequence", "4096", "--global-batch", "1"},
                 ". --recompute full would need 18.38 GiB and fit");
    expect_parts({"train", "llama3-8b", "--dry-run", "--gpu", "h100"},
                 "--recompute full --dtype bf16 --gradients bf16");
    expect_parts({"train", "llama3-70b", "--dry-run", "--gpu", "h100"},
                 "--device-memory 79GiB keeps what is too much in host memory; or about ");
    // On any CPU: 2.5 TiB.
    expect_parts({"train", "gpt3-175b", "--dry-run", "--sequence", "128"},
                 "--disk DIR keeps what is too much in files, slowly; or about ");
}

TEST(Train, TheTableSaysWhatCountsUnderALimit) {
    const Outcome limited = tutti_with(small_run({"--dry-run", "--device-memory", "64MiB"}));
    EXPECT_EQ(limited.status, 0) << limited.errors;
    EXPECT_NE(limited.output.find("64.00 MiB  set by --device-memory: "), std::string::npos) << limited.output;
    EXPECT_NE(limited.output.find(" of it are taken; libraries come on top"), std::string::npos) << limited.output;
    EXPECT_EQ(tutti_with(small_run({"--dry-run"})).output.find("--device-memory:"), std::string::npos);
}

// Kernels are timed at the start of a traced run, in no more memory than the run will take.
TEST(Train, TracingTakesNoMoreMemoryThanTheTableSays) {
    const TemporaryFolder folder;
    const Outcome outcome = tutti_with({"train", "gpt2-tiny", "--steps", "4", "--threads", "1", "--json", "--trace",
                                        (folder / "trace.json").string()});
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const auto lines = json_lines(outcome.output);
    const std::int64_t table = lines.at(0).at("summary").at("memory_bytes").at("total"),
                       peak = lines.back().at("result").at("peak_resident_bytes");
    EXPECT_LT(peak, table + (std::int64_t{16} << 20)); // 170 MiB more before
}

TEST(Train, LeavesModelConfigPlanAndMetrics) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", metrics = folder / "m.jsonl";
    const Words words = small_run({"--steps", "3", "--eval-every", "2", "--output", run.string(), "--metrics",
                                   metrics.string(), "--dump-step0", (folder / "d.safetensors").string()});
    const Outcome outcome = tutti_with(words);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    for (const char* part :
         {"step 1/3", "step 3/3", "evaluation loss", "done: 3 of 3 steps", "resident at its peak", "sample"})
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    for (const char* name : {"model/config.json", "model/model.safetensors", "config.toml", "plan.json", "tensorboard"})
        EXPECT_TRUE(fs::exists(run / name)) << name;
    std::int64_t steps = 0, evaluations = 0;
    for (const auto& line : json_lines(read_text(metrics))) {
        if (line.contains("eval_loss")) {
            ++evaluations;
            continue;
        }
        EXPECT_EQ(line.at("step"), ++steps);
        for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second"})
            EXPECT_TRUE(line.at(key).is_number()) << key;
    }
    EXPECT_EQ(steps, 3);
    EXPECT_GE(evaluations, 1);
    RunConfig saved;
    run::read_run_config(saved, run / "config.toml");
    EXPECT_EQ(saved.workload.global_batch, 4);
    EXPECT_EQ(saved.output, run.string());
    EXPECT_NE(SafetensorsFile(folder / "d.safetensors").find("logits"), nullptr);
}

TEST(Train, BeginsWithNewWeightsWhereAsked) {
    const TemporaryFolder folder;
    fs::create_directory(folder / "model");
    fs::copy(reference("gpt2") / "config.json", folder / "model");
    auto losses = [&](const fs::path& model) {
        const std::string metrics = (folder / "metrics.jsonl").string();
        fs::remove(metrics);
        const Outcome outcome =
            tutti_with({"train", model.string(), "--from-scratch", "--steps", "2", "--seed", "3", "--global-batch", "2",
                        "--sequence", "16", "--metrics", metrics, "--output", (folder / "run").string()});
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        std::vector<double> all;
        for (const nlohmann::json& step : json_lines(read_text(metrics))) all.push_back(step["loss"]);
        return all;
    };
    const std::vector<double> bare = losses(folder / "model");
    EXPECT_EQ(bare.size(), 2u);
    EXPECT_TRUE(fs::exists(folder / "run/model/model.safetensors"));
    EXPECT_EQ(losses(reference("gpt2")), bare); // its own weights are not looked at
    EXPECT_EQ(losses(folder / "run/model"), bare);
}

TEST(Train, SaysThatBuiltInModelsBeginWithNewWeights) {
    const Outcome builtin = tutti_with({"train", "gpt2-tiny", "--dry-run"}),
                  folder = tutti_with({"train", gpt2, "--dry-run"});
    EXPECT_NE(builtin.output.find("from_scratch yes"), std::string::npos) << builtin.output;
    EXPECT_NE(folder.output.find("from_scratch no"), std::string::npos) << folder.output;
}

TEST(Train, FlagsWinOverTheConfigFile) {
    const TemporaryFolder folder;
    const fs::path file = folder.write("run.toml", "steps = 7\nglobal_batch = 6\nsequence = 16\n");
    const Outcome outcome =
        tutti_with({"train", gpt2, "--config", file.string(), "--steps", "9", "--dry-run", "--json"});
    const auto summary = json_lines(outcome.output).at(0).at("summary");
    EXPECT_EQ(summary.at("steps"), 9);
    EXPECT_EQ(summary.at("plan").at("workload").at("global_batch"), 6);
}

TEST(Train, JsonHoldsSummaryAndResult) {
    const Outcome outcome = tutti_with(small_run({"--steps", "2", "--json"}));
    const auto lines = json_lines(outcome.output);
    ASSERT_EQ(lines.size(), 2u) << outcome.output;
    EXPECT_EQ(lines[1].at("result").at("steps_done"), 2);
    EXPECT_EQ(lines[1].at("result").at("stopped"), false);
    EXPECT_GT(lines[1].at("result").at("peak_resident_bytes"), 0);
}

fs::path newest_checkpoint(const fs::path& run) {
    fs::path newest;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored))
        if (entry.path().extension() != ".tmp") newest = std::max(newest, entry.path());
    return newest;
}

// Losses and norms to the last bit, by the text that JSON has for them.
std::vector<std::string> numbers_of(const fs::path& metrics) {
    std::vector<std::string> numbers;
    for (const auto& line : json_lines(read_text(metrics)))
        numbers.push_back(line.at("step").dump() + " " + line.at("loss").dump() + " " + line.at("grad_norm").dump());
    return numbers;
}

// Runs for longer than it will be let, and calls `end` once the checkpoint of step 10 is there.
void run_until_checkpoint(const Words& words, const fs::path& run, const std::function<void(Process&)>& end) {
    Process process(words);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (newest_checkpoint(run).filename() < "step-00000010") {
        ASSERT_TRUE(process.running()) << process.errors();
        ASSERT_LT(std::chrono::steady_clock::now(), limit);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    end(process);
}

TEST(Train, ResumesBitForBitAfterBeingKilled) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", metrics = folder / "m.jsonl", whole = folder / "whole.jsonl";
    const Words common = {"--save-every",   "5",         "--output", run.string(), "--metrics",
                          metrics.string(), "--threads", "2"};
    auto with = [&](Words words) {
        words.insert(words.end(), common.begin(), common.end());
        return small_run(words);
    };
    run_until_checkpoint(with({"--steps", "100000"}), run, [](Process& process) {
        process.signal(SIGKILL);
        EXPECT_EQ(process.wait(), -SIGKILL);
    });
    const std::int64_t saved = std::stoll(newest_checkpoint(run).filename().string().substr(5));
    ASSERT_GE(saved, 10);
    const std::string steps = std::to_string(saved + 10);
    const Outcome resumed = tutti_with(with({"--steps", steps, "--resume"}));
    ASSERT_EQ(resumed.status, 0) << resumed.errors;
    ASSERT_EQ(tutti_with(small_run({"--steps", steps, "--metrics", whole.string(), "--threads", "2"})).status, 0);
    const auto numbers = numbers_of(metrics);
    EXPECT_EQ(numbers.size(), static_cast<std::size_t>(saved + 10));
    EXPECT_EQ(numbers, numbers_of(whole));
    EXPECT_EQ(tutti_with({"inspect", newest_checkpoint(run).string()}).status, 0);
}

TEST(Train, SavesAndStopsOnSignalsAndOnRequest) {
    for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGUSR1}) {
        const TemporaryFolder folder;
        const fs::path run = folder / "run";
        run_until_checkpoint(small_run({"--steps", "100000", "--save-every", "10", "--output", run.string()}), run,
                             [&](Process& process) {
                                 process.signal(signal);
                                 EXPECT_EQ(process.wait(), 128 + signal) << process.errors();
                                 EXPECT_NE(process.output().find("stopped after"), std::string::npos);
                             });
        EXPECT_NE(tutti_with({"inspect", newest_checkpoint(run).string()}).output.find("whole"), std::string::npos);
    }
    const TemporaryFolder folder;
    const Outcome outcome =
        tutti_with(small_run({"--steps", "9", "--stop-after", "4", "--output", (folder / "run").string()}));
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(newest_checkpoint(folder / "run").filename(), "step-00000004");
    const std::string part = "it is the folder of a run that is not finished, and its model is written at the end: "
                             "tutti train --config \"" +
                             (folder / "run/config.toml").string() + "\" --resume goes on with it";
    for (const Words& words :
         {Words{"generate", (folder / "run").string(), "--prompt", "a"}, Words{"inspect", (folder / "run").string()}})
        expect_refusal(words, part);
}

// Where nohup starts it, the terminal may go.
TEST(Train, GoesOnAfterAHangupThatWasIgnoredFromTheStart) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    Words words = small_run({"--steps", "100000", "--save-every", "10", "--output", run.string()});
    words.insert(words.begin(), the_program().string());
    if (!fs::exists("/usr/bin/nohup")) GTEST_SKIP() << "there is no nohup";
    Process process(words, nullptr, "/usr/bin/nohup");
    const auto wait_for_another_than = [&](const fs::path& before) {
        while (process.running() && newest_checkpoint(run) == before)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    };
    wait_for_another_than({});
    process.signal(SIGHUP);
    wait_for_another_than(newest_checkpoint(run));
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 128 + SIGTERM);
}

TEST(Train, GoesOnWhereItsOutputCannotBeWritten) {
    const TemporaryFolder folder;
    auto words = [&](const std::string& run, const Words& more = {}) {
        Words all = small_run({"--steps", "5", "--output", (folder / run).string()});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    Process full(words("full"), "/dev/full");
    EXPECT_EQ(full.wait(), 0) << full.errors();
    EXPECT_EQ(full.errors(),
              "tutti: warning: cannot write to standard output: No space left on device; the run goes on "
              "without it\n");
    EXPECT_TRUE(fs::exists(folder / "full/model"));
    Process looking(words("dry", {"--dry-run"}), "/dev/full");
    EXPECT_EQ(looking.wait(), 75); // it has nothing else to do

    Words piped = words("piped");
    const std::string script = "\"$0\" \"$@\" | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}";
    piped.insert(piped.begin(), {"-c", script, the_program().string()});
    const Outcome outcome = tutti_with(piped, "/bin/bash");
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_TRUE(fs::exists(folder / "piped/model"));
}

TEST(Train, TwoRunsDoNotWriteToOneFolder) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    const Words words = small_run({"--steps", "100000", "--save-every", "10", "--output", run.string()});
    run_until_checkpoint(words, run, [&](Process& process) {
        Words resumed = words, dry = words;
        resumed.push_back("--resume");
        dry.push_back("--dry-run");
        for (const Words& second : {words, resumed}) {
            const Outcome outcome = tutti_with(second);
            EXPECT_EQ(outcome.status, 75); // trying again works when the other has ended
            EXPECT_EQ(outcome.errors, "tutti: another run is writing to " + run.string() +
                                          ": wait until it ends, or give another --output\n");
        }
        EXPECT_EQ(tutti_with(dry).status, 0); // it looks and writes nothing
        EXPECT_TRUE(process.running());
        process.signal(SIGKILL); // no lock is left behind
        process.wait();
        resumed.insert(resumed.end(), {"--stop-after", "1"});
        EXPECT_EQ(tutti_with(resumed).status, 0);
    });
}

TEST(Train, ASavedConfigTakesAnotherMesh) {
    const TemporaryFolder folder;
    const std::string run = (folder / "run").string(), saved = run + "/config.toml";
    const Outcome first = tutti_with(
        small_run({"--steps", "1", "--mesh", "pipe=2", "--micro-batch", "2", "--comm", "threads", "--output", run}));
    ASSERT_EQ(first.status, 0) << first.errors;
    for (const char* part : {"starting 2 ranks as threads on ", "memory of rank 0\n", "all 2 ranks: ", " MFLOP\n",
                             "resident at its peak; the tables of all 2 ranks say "})
        EXPECT_NE(first.output.find(part), std::string::npos) << part << "\n" << first.output;
    for (const char* mesh : {"data=2", "tensor=2", "pipe=4"}) {
        const Outcome other = tutti_with({"train", "--config", saved, "--mesh", mesh, "--dry-run"});
        EXPECT_EQ(other.status, 0) << mesh << "\n" << other.errors;
        EXPECT_EQ(other.errors, "") << mesh;
    }
    const Outcome same = tutti_with({"train", "--config", saved, "--dry-run", "--json"});
    EXPECT_EQ(json_lines(same.output)[0].at("summary").at("plan").at("mesh").at("pipe"), 2) << same.errors;
    EXPECT_EQ(json_lines(same.output)[0].at("summary").at("plan").at("schedule").at("family"), "1f1b");
}

TEST(Train, SaysThatNothingIsLeftToDo) {
    const TemporaryFolder folder;
    const std::string run = (folder / "run").string();
    ASSERT_EQ(tutti_with(small_run({"--steps", "4", "--output", run})).status, 0);
    const Outcome outcome = tutti_with(small_run({"--steps", "4", "--output", run, "--resume"}));
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.output.find("nothing was left to do: 4 steps were done before"), std::string::npos)
        << outcome.output;
    EXPECT_NE(outcome.errors.find("4 steps were done before and steps is 4: there is nothing left to train"),
              std::string::npos)
        << outcome.errors;
}

// 3 more steps after 4 are --steps 7. --steps 3 used to finish the run at step 4 and to change its config.toml.
TEST(Train, RefusesToEndARunBeforeTheStepsThatAreDone) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    ASSERT_EQ(tutti_with(small_run({"--steps", "9", "--stop-after", "4", "--output", run.string()})).status, 0);
    const std::string config = read_text(run / "config.toml");
    expect_refusal(small_run({"--steps", "3", "--output", run.string(), "--resume"}),
                   "4 steps were done before, and steps is 3: --steps counts from the first step of the run, so "
                   "--steps 7 would go on");
    EXPECT_EQ(read_text(run / "config.toml"), config);
    EXPECT_FALSE(fs::exists(run / "model"));
    EXPECT_EQ(newest_checkpoint(run).filename(), "step-00000004");
}

// The cosine of a longer run is higher where the shorter one's had come to its end.
TEST(Train, SaysThatTheLearningRateJumpsWhereARunIsMadeLonger) {
    const TemporaryFolder folder;
    const std::string run = (folder / "run").string();
    auto words = [&](const Words& more) {
        Words all = {"train", gpt2, "--sequence", "16", "--global-batch", "4", "--threads", "1", "--output", run};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    ASSERT_EQ(tutti_with(words({"--steps", "5", "--stop-after", "2"})).status, 0);
    EXPECT_EQ(tutti_with(words({"--steps", "5", "--resume"})).errors, "");
    const Outcome longer = tutti_with(words({"--steps", "9", "--resume"}));
    EXPECT_NE(longer.errors.find("was made with steps 5 (now 9); its learning rate was 1.00e-04 at last, and goes on "
                                 "at 3.78e-04"),
              std::string::npos)
        << longer.errors;
}

TEST(Train, DoubtsAScheduleWithoutAPipeline) {
    const Outcome outcome = tutti_with(small_run({"--schedule", "gpipe", "--dry-run"}));
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.errors.find("schedule is gpipe, and there is no pipeline for it"), std::string::npos)
        << outcome.errors;
    EXPECT_NE(outcome.errors.find("--mesh pipe=2 would make one"), std::string::npos) << outcome.errors;
}

TEST(Train, RepeatedAndLongerRunsKeepWhatWasThere) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    const Words words = small_run({"--steps", "2", "--output", run.string()});
    ASSERT_EQ(tutti_with(words).status, 0);
    const std::string model = read_text(run / "model/model.safetensors");
    const Outcome again = tutti_with(words);
    EXPECT_EQ(again.status, 0);
    EXPECT_NE(again.errors.find("is kept as " + (run / "model.old").string()), std::string::npos) << again.errors;
    EXPECT_NE(again.errors.find("are kept as " + (run / "checkpoints.old").string()), std::string::npos);
    EXPECT_EQ(read_text(run / "model.old/model.safetensors"), model);
    EXPECT_EQ(read_text(run / "model/model.safetensors"), model);
    const Outcome longer = tutti_with(small_run({"--steps", "3", "--output", run.string(), "--resume"}));
    EXPECT_EQ(longer.status, 0) << longer.errors;
    EXPECT_NE(longer.output.find("3, going on after 2"), std::string::npos) << longer.output;
    EXPECT_NE(longer.output.find("done: 3 of 3 steps"), std::string::npos) << longer.output;
}

TEST(Train, ADamagedCheckpointIsToldOnResumeAndNothingIsPutInItsPlace) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    ASSERT_EQ(tutti_with(small_run({"--steps", "9", "--stop-after", "1", "--output", run.string()})).status, 0);
    folder.write("run/checkpoints/step-00000001/checkpoint.json", "{\"tutti_checkpoint\": 1");
    const Outcome resumed = tutti_with(small_run({"--steps", "1", "--output", run.string(), "--resume"}));
    EXPECT_EQ(resumed.status, 2);
    for (const char* part : {"checkpoint.json is not JSON", "passed over", "none of them is whole"})
        EXPECT_NE(resumed.errors.find(part), std::string::npos) << part << "\n" << resumed.errors;
}

TEST(Train, AFileSizeLimitEndsTheRunAndLeavesTheCheckpointsWhole) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    ASSERT_EQ(tutti_with(small_run({"--steps", "9", "--stop-after", "1", "--output", run.string()})).status, 0);
    struct rlimit before {};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const struct rlimit limited { 100000, before.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &limited); // as ulimit -f does; the program inherits it, and SIGXFSZ would end it
    Process process(small_run({"--steps", "9", "--save-every", "1", "--output", run.string(), "--resume"}));
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(process.wait(), 75) << process.errors();
    EXPECT_NE(process.errors().find("File too large"), std::string::npos) << process.errors();
    EXPECT_EQ(newest_checkpoint(run).filename(), "step-00000001");
    EXPECT_NE(tutti_with({"inspect", newest_checkpoint(run).string()}).output.find(": whole"), std::string::npos);
    EXPECT_FALSE(fs::exists(run / "checkpoints/step-00000002.tmp"));
}

TEST(Inspect, ShowsModelsPlansCheckpointsAndTensors) {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    ASSERT_EQ(tutti_with(small_run({"--steps", "1", "--save-every", "1", "--output", run.string()})).status, 0);
    auto shows = [](const Words& words, const std::string& part) {
        const Outcome outcome = tutti_with(words);
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    };
    shows({"inspect", gpt2}, "220,544");
    shows({"inspect", gpt2}, "layers");
    shows({"inspect", run.string()}, "GPT2LMHeadModel");
    shows({"inspect", gpt2, "--graph", "--sequence", "8"}, "input %0 \"input_ids\": int64[1,8]");
    shows({"inspect", "llama-tiny", "--program", "--sequence", "8"}, "update");
    shows({"inspect", (run / "plan.json").string()}, "4 sequences of 16 tokens");
    shows({"inspect", (run / "model/model.safetensors").string()}, "transformer.wte.weight");
    EXPECT_EQ(nlohmann::json::parse(tutti_with({"inspect", gpt2, "--json"}).output).at("parameters"), 220544);
    const fs::path checkpoint = newest_checkpoint(run);
    shows({"inspect", checkpoint.string()}, ": whole");
    std::string bytes = read_text(checkpoint / "state.safetensors");
    bytes.back() ^= 1;
    folder.write(fs::relative(checkpoint / "state.safetensors", folder.path()).string(), bytes);
    shows({"inspect", checkpoint.string()}, "DAMAGED");
    EXPECT_EQ(
        nlohmann::json::parse(tutti_with({"inspect", checkpoint.string(), "--json"}).output)["files"][0]["intact"],
        false);
}

TEST(Generate, DrawsTheSameTokensFromTheSameSeed) {
    const Words words = {"generate", gpt2, "--prompt", "Hello", "--tokens", "8", "--seed", "3", "--json"};
    const auto first = nlohmann::json::parse(tutti_with(words).output),
               second = nlohmann::json::parse(tutti_with(words).output);
    EXPECT_EQ(first, second);
    EXPECT_EQ(first.at("tokens").size(), 8u);
    EXPECT_EQ(first.at("prompt_tokens"), (nlohmann::json{72, 101, 108, 108, 111}));
    const Outcome text = tutti_with({"generate", gpt2, "--prompt", "Hello", "--tokens", "8", "--seed", "3"});
    EXPECT_TRUE(text.output.starts_with("Hello"));
    const Outcome ids = tutti_with({"generate", reference("gpt2-variant").string(), "--prompt-tokens", "1,2",
                                    "--tokens", "3", "--temperature", "0"});
    EXPECT_TRUE(ids.output.starts_with("1 2 ")) << ids.output;
}

TEST(Generate, EscapesControlCharactersOnATerminalOnly) {
    const Words words = {"generate", gpt2, "--prompt", "a\x1b[2Jb\a", "--tokens", "0"};
    EXPECT_EQ(tutti_with(words).output, "a\x1b[2Jb\a\n");
    const Terminal terminal;
    Process process(words, terminal.name());
    EXPECT_EQ(process.wait(), 0) << process.errors();
    EXPECT_EQ(terminal.read(), "a\\x1b[2Jb\\x07\r\n");
}

TEST(Train, SaysWhereThePlannerDoesNotChoose) {
    const Words words = small_run({"--ranks", "2", "--comm", "threads", "--dry-run"});
    Words limited = words, laid_out = words;
    limited.insert(limited.end(), {"--device-memory", "60MiB"});
    laid_out.insert(laid_out.end(), {"--device-memory", "60MiB", "--mesh", "data=2"});
    const char* const note = "The planner does not choose with --device-memory: all 2 ranks are replicas";
    EXPECT_NE(tutti_with(limited).output.find(note), std::string::npos);
    EXPECT_EQ(tutti_with(laid_out).output.find("The planner"), std::string::npos);
}

} // namespace
} // namespace tutti::test

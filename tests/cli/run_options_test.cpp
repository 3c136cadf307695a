#include "run/run_options.h"

#include "base/nearest.h"
#include "cli/progress.h"
#include "support/temporary_folder.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

namespace tutti::cli {

using namespace offload;
using namespace run;
using namespace sharding;
using namespace terminal;
namespace {

// Every field away from its default: a field that the table forgets would come back as it was made.
RunConfig unusual() {
    RunConfig config;
    config.model = "a \"quoted\" \\ folder\twith\n\x7f and ü";
    config.from_scratch = true;
    config.gpu = "h200";
    config.data = "data.bin";
    config.eval_data = "more.bin";
    config.output = "run";
    config.mask_token = 103;
    config.steps = 7;
    config.workload.sequence = 33;
    config.workload.global_batch = 12;
    config.workload.micro_batch = 3;
    config.seed = 9223372036854775807u;
    config.device = "reference";
    config.threads = 5;
    config.precision.compute = DType::float64;
    config.precision.master = DType::bfloat16;
    config.precision.gradients = DType::bfloat16;
    config.gradients_over_weights = false;
    config.precision.moments = DType::bfloat16;
    config.chunk_elements = 4096;
    config.split_backward = true;
    config.device_memory = {123456789};
    config.host_memory = {1};
    config.disk = "/d";
    config.optimizer_placement = OptimizerPlacement::host;
    config.eviction = Eviction::least_recent;
    config.prefetch = false;
    config.updates = UpdateTime::end;
    config.offload_activations = ActivationOffload::automatic;
    config.ranks = 6;
    config.mesh = Mesh{.pipe = 3, .data = 1, .tensor = 2};
    config.comm = Connection::threads;
    config.timeout = 2.5;
    config.schedule = "zb-v";
    config.stages_per_rank = 2;
    config.model_replicas = 1;
    config.in_flight = 4;
    config.zero = 3;
    config.recompute = {.share = 1.0 / 3};
    config.sequence_parallel = false;
    config.sub_pipeline = true;
    config.plan = "p.json";
    config.trace = "t.json";
    config.lr = 0.1 + 0.2;
    config.lr_min = 0;
    config.lr_schedule = LearningRateSchedule::warmup_stable_decay;
    config.warmup = 2;
    config.decay_share = 1.0 / 3;
    config.beta1 = 0.8;
    config.beta2 = 0.999999;
    config.eps = 1e-300;
    config.weight_decay = 1;
    config.clip = 1e22;
    config.eval_every = 10;
    config.eval_batches = 11;
    config.save_every = 12;
    config.keep = 13;
    config.resume = true;
    config.resume_from = 17;
    config.allow_changed_data = true;
    config.stop_after = 14;
    config.non_finite_limit = 15;
    config.metrics = "m.jsonl";
    config.tensorboard = false;
    config.dump_step0 = "d.safetensors";
    config.report = "r.html";
    config.dry_run = true;
    config.measure_top = 16;
    return config;
}

TEST(RunOptions, ASavedConfigReadsBackTheSame) {
    for (const RunConfig& config : {RunConfig{}, unusual()}) {
        RunConfig read;
        read.steps = 12345;
        parse_run_config(read, to_toml(config), "config.toml");
        EXPECT_EQ(read, config) << to_toml(config);
    }
}

TEST(RunOptions, HoldEveryField) {
    const RunConfig defaults, other = unusual();
    for (const RunOption& option : run_options()) EXPECT_NE(option.get(defaults), option.get(other)) << option.key;
    RunConfig copied;
    for (const RunOption& option : run_options()) EXPECT_TRUE(option.set(copied, option.get(other))) << option.key;
    EXPECT_EQ(copied, other);
}

TEST(RunOptions, FlagsAndKeysGiveTheSame) {
    RunConfig by_flag, by_key;
    set_from_text(by_flag, *find_run_option("betas"), "0.8,0.99");
    set_from_text(by_flag, *find_run_option("lr"), "3e-4");
    set_from_text(by_flag, *find_run_option("mask_token"), "-1");
    set_from_text(by_flag, *find_run_option("tensorboard"), "false");
    parse_run_config(by_key, "betas = [0.8, 0.99]\nlr = 3e-4\nmask_token = -1\ntensorboard = false\n", "f");
    EXPECT_EQ(by_flag, by_key);
}

TEST(RunOptions, MistakesInAFileNameFileLineAndKey) {
    RunConfig config;
    auto mistake = [&](const char* text) {
        return test::error_of([&] { parse_run_config(config, text, "run.toml"); });
    };
    EXPECT_EQ(mistake("steps = 3\nglobal_bach = 8\n"),
              "run.toml, line 2: unknown key \"global_bach\"; did you mean global_batch?");
    EXPECT_EQ(mistake("\n\nsteps = \"three\""), "run.toml, line 3: steps is \"three\", and should be an integer");
    EXPECT_EQ(mistake("steps = 3.0"), "run.toml, line 1: steps is 3.0, and should be an integer");
    EXPECT_EQ(mistake("lr = nan"), "run.toml, line 1: lr is nan, and should be a number");
    EXPECT_EQ(mistake("betas = [0.9]"),
              "run.toml, line 1: betas is an array, and should be two numbers, as in [0.9, 0.95]");
    EXPECT_EQ(mistake("[section]\nsteps = 3"), "run.toml, line 1: unknown key \"section\"");
    EXPECT_EQ(mistake("resume = 1"), "run.toml, line 1: resume is 1, and should be true or false");
    EXPECT_TRUE(mistake("steps = = 3").starts_with("run.toml, line 1: "));
    EXPECT_TRUE(mistake("steps = 3\nsteps = 4").starts_with("run.toml, line 2: "));
}

TEST(Nearest, FindsTypingMistakesAndNothingElse) {
    EXPECT_EQ(edit_distance("steps", "steps"), 0u);
    EXPECT_EQ(edit_distance("tsep", "step"), 1u);
    EXPECT_EQ(edit_distance("setps", "steps"), 1u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    const std::vector<std::string> known = {"steps", "seed", "lr"};
    EXPECT_EQ(nearest("stpes", known), "steps");
    EXPECT_EQ(nearest("elephant", known), std::nullopt);
    EXPECT_EQ(nearest("x", known), std::nullopt);
}

TEST(SafeText, ReplacesWhatATerminalMustNotSee) {
    SafeText safe;
    EXPECT_EQ(safe.add("a\xc3"), "a"); // may still become ü
    EXPECT_EQ(safe.add("\xbc\n"), "ü\n");
    EXPECT_EQ(safe.add("\x1b[2J\a\x7f\xc2\x9b"), "\\x1b[2J\\x07\\x7f\\x9b");
    EXPECT_EQ(safe.add("\xe2\x80\xae\xe2\x81\xa6"), "\\u202e\\u2066"); // they would turn what follows
    EXPECT_EQ(safe.add("\xe2\x80\x8f"), "\xe2\x80\x8f");               // a mark of Arabic and Hebrew texts
    EXPECT_EQ(safe.add("\xff\x80z"), "\xef\xbf\xbd\xef\xbf\xbdz");
    EXPECT_EQ(safe.add("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // a surrogate
    EXPECT_EQ(safe.add("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
    EXPECT_EQ(safe.add("\xe2\x82"), "");
    EXPECT_EQ(safe.finish(), "\xef\xbf\xbd");
    EXPECT_EQ(safe.finish(), "");
}

TEST(Progress, TheLineKeepsStepLossAndTimeLeftHoweverNarrow) {
    StepReport step;
    step.step = 41;
    step.loss = 3.14159;
    step.gradient_norm = 1.25;
    step.learning_rate = 1e-3;
    step.duration = {0.4};
    step.tokens_per_second = 5120;
    step.memory = {111812608};
    EXPECT_EQ(step_line(step, 200, {125}, 200),
              "step  42/200  loss 3.1416  norm 1.25  lr 1.00e-03  400 ms  5.12k tokens/s  106.63 MiB  2 m 05 s left");
    for (std::size_t columns : {100u, 90u, 80u, 70u, 60u, 50u, 42u}) {
        const std::string line = step_line(step, 200, {125}, columns);
        EXPECT_LE(line.size(), columns);
        EXPECT_TRUE(line.starts_with("step  42/200") && line.ends_with("2 m 05 s left")) << line;
    }
    EXPECT_EQ(step_line(step, 200, {125}, 10).size(), 10u);
}

TEST(Progress, AboutTwentyPlainLines) {
    EXPECT_EQ(line_stride(1), 1);
    EXPECT_EQ(line_stride(20), 1);
    EXPECT_EQ(line_stride(60), 5);
    EXPECT_EQ(line_stride(200), 10);
    EXPECT_EQ(line_stride(100000), 5000);
}

TEST(Words, NumbersAreShownShort) {
    EXPECT_EQ(with_commas(0), "0");
    EXPECT_EQ(with_commas(999), "999");
    EXPECT_EQ(with_commas(-1234567), "-1,234,567");
    EXPECT_EQ(short_number(999.6), "1k");
    EXPECT_EQ(short_number(124e6), "124M");
    EXPECT_EQ(short_number(444.9e3, "FLOP"), "445 kFLOP");
    EXPECT_EQ(short_number(12, "FLOP"), "12 FLOP");
    EXPECT_EQ(short_number(4e19, "FLOP"), "40 EFLOP");
    EXPECT_EQ(in_words(70.58e9), "70.6 billion");
    EXPECT_EQ(in_words(999.7e6), "1 billion");
    EXPECT_EQ(in_words(124e6), "124 million");
    EXPECT_EQ(in_words(220544), "220,544");
}

// 2457600.00 times the least possible, where that is nothing.
TEST(Progress, CopiesAreNotComparedWithNone) {
    OffloadSummary offload;
    offload.fetched = {2457600};
    EXPECT_NE(describe({}, offload).find("2.34 MiB to the device, 0 B back: none of it has to be copied"),
              std::string::npos)
        << describe({}, offload);
    offload.least = {1228800};
    EXPECT_NE(describe({}, offload).find("back: 2.00 times the least possible"), std::string::npos);
}

} // namespace
} // namespace tutti::cli

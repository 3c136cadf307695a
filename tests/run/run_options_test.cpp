// The table of options: flags, TOML and what else follows from it, and the names that it had or that others have.
#include "run/flags_page.h"
#include "run/foreign_names.h"
#include "run/kept_config.h"
#include "run/run_options.h"

#include "plan/settings_table.h"
#include "support/temporary_folder.h"

#include <set>

namespace tutti {

using namespace offload;
using namespace run;
using namespace sharding;
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
    config.bind = cores::Bind::numa;
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
    parse_run_config(by_key, "tensorboard = \"on\"\n", "f"); // as the page of flags shows it
    EXPECT_TRUE(by_key.tensorboard);
    parse_run_config(by_key, "tensorboard = \"off\"\n", "f");
    EXPECT_FALSE(by_key.tensorboard);
    EXPECT_ERROR(parse_run_config(by_key, "tensorboard = \"maybe\"\n", "f"), "should be true or false");
}

TEST(RunOptions, TakeOtherNamesOfTypes) {
    for (const auto& [text, type] : {std::pair("fp32", DType::float32), std::pair("float32", DType::float32),
                                     std::pair("bfloat16", DType::bfloat16), std::pair("double", DType::float64)}) {
        RunConfig config;
        set_from_text(config, *find_run_option("dtype"), text);
        EXPECT_EQ(config.precision.compute, type) << text;
    }
    RunConfig config;
    for (const char* text : {"fp16", "half", "float16"})
        EXPECT_ERROR(set_from_text(config, *find_run_option("dtype"), text), "should be float32, bf16, or");
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

TEST(RunOptions, EverySettingOfAPlanCanBeAskedFor) {
    for (const PlanSetting& setting : plan_settings()) {
        const RunOption* option = find_run_option(setting.key);
        ASSERT_NE(option, nullptr) << setting.key;
        EXPECT_EQ(option->key, setting.key);
        EXPECT_EQ(option->expected, setting.given.expected) << setting.key;
    }
}

TEST(RunOptions, NoNameOldOrNewIsUsedTwice) {
    std::set<std::string> names;
    for (const RunOption& option : run_options()) {
        EXPECT_TRUE(names.insert(option.key).second) << option.key;
        for (const std::string& older : option.older) EXPECT_TRUE(names.insert(older).second) << older;
    }
}

TEST(RunOptions, OlderNamesAreReadAndTheNameOfTodayIsWritten) {
    RunConfig config;
    EXPECT_EQ(parse_run_config(config, "copies = 4\n", "old.toml"), std::vector<std::string>{"model_replicas"});
    EXPECT_EQ(config.model_replicas, 4);
    EXPECT_EQ(find_run_option("copies"), find_run_option("model_replicas"));
    const std::string kept = kept_config(config, config, false);
    EXPECT_NE(kept.find("\nmodel_replicas = 4\n"), std::string::npos) << kept;
    EXPECT_EQ(kept.find("copies ="), std::string::npos) << kept;
    EXPECT_ERROR(parse_run_config(config, "model_replicas = 2\ncopies = 2\n", "both.toml"),
                 "both.toml, line 1: model_replicas was given before by another of its names");
}

// A plan that is followed stands in the run's folder, complete; the file that it came from may go.
TEST(KeptConfig, OfARunThatFollowsAPlanNamesThePlanInItsFolder) {
    RunConfig config;
    config.plan = "/elsewhere/p.json";
    config.output = "/runs/a";
    config.mesh = Mesh{.data = 2};
    config.zero = 1;
    config.device = "reference";
    config.workload.sequence = 16;
    config.lr = 0.5;
    const std::string kept = kept_config(config, config, false);
    EXPECT_NE(kept.find("\nplan = \"/runs/a/plan.json\"\n"), std::string::npos) << kept;
    EXPECT_NE(kept.find("\ndevice = \"reference\"\n"), std::string::npos) << kept; // a plan runs on any
    // What the losses follow from holds without the plan, too.
    for (const char* line : {"lr = 0.5", "sequence = 16", "dtype = \"float32\""})
        EXPECT_NE(kept.find("\n" + std::string(line) + "\n"), std::string::npos) << kept;
    for (const char* key : {"mesh", "zero", "schedule", "micro_batch", "chunk_elements", "recompute"})
        EXPECT_EQ(kept.find("\n" + std::string(key) + " ="), std::string::npos) << kept;
}

TEST(KeptConfig, PathsHaveNoWaysRound) {
    const test::TemporaryFolder folder;
    fs::create_directories(folder / "a/b");
    fs::create_directories(folder / "c");
    fs::create_directory_symlink(folder / "a/b", folder / "c/link");
    RunConfig config;
    config.output = (folder / "c/../a/./run").string();
    config.metrics = (folder / "c/link/../m.jsonl").string(); // in a, not in c
    RunConfig read;
    parse_run_config(read, kept_config(config, config, false), "config.toml");
    EXPECT_EQ(read.output, (folder / "a/run").string());
    EXPECT_EQ(read.metrics, config.metrics);
}

// docs/flags.md is for readers who have no program yet.
TEST(RunOptions, ThePageOfFlagsSaysWhatTheTableSays) {
    EXPECT_TRUE(read_text(fs::path(TUTTI_DOCS) / "flags.md") == flags_page())
        << "docs/flags.md is not what the table of options says now: tutti train --help-markdown > docs/flags.md";
}

TEST(RunOptions, ThePageOfFlagsHasALineForEach) {
    const std::string page = flags_page();
    for (const RunOption& option : run_options()) {
        const std::string name = option.positional() ? option.operand : option.flag();
        EXPECT_NE(page.find("\n| `" + name), std::string::npos) << name;
    }
    EXPECT_NE(page.find("| `--global-batch N` | an integer | `0` | sequences per step"), std::string::npos) << page;
    EXPECT_NE(page.find("| `--prefetch on\\|off` | on or off | `on` |"), std::string::npos) << page;
    EXPECT_NE(page.find("(formerly `--copies`)"), std::string::npos) << page;
}

TEST(ForeignNames, AreAnsweredWithTheNameHere) {
    EXPECT_EQ(answer_to_foreign_name("--learning-rate"), "--learning-rate is called --lr here");
    EXPECT_EQ(answer_to_foreign_name("--learning_rate"), "--learning_rate is called --lr here");
    EXPECT_EQ(answer_to_foreign_name("learning_rate"), "learning_rate is called lr here");
    EXPECT_EQ(answer_to_foreign_name("--max-grad-norm"), "--max-grad-norm is called --clip here");
    EXPECT_EQ(answer_to_foreign_name("--save-steps"), "--save-steps is called --save-every here");
    EXPECT_EQ(answer_to_foreign_name("--per-device-train-batch-size"),
              "--per-device-train-batch-size is called --micro-batch here");
    EXPECT_EQ(answer_to_foreign_name("--num-train-epochs"),
              "--num-train-epochs is called --steps here, and counts optimizer steps");
    EXPECT_EQ(answer_to_foreign_name("--gradient-accumulation-steps"),
              "--gradient-accumulation-steps follows here from --global-batch and --micro-batch");
    EXPECT_EQ(answer_to_foreign_name("--warmup-steps"), "--warmup-steps is called --warmup here");
    EXPECT_EQ(answer_to_foreign_name("--bf16"), "--bf16 is --dtype bf16 here");
    EXPECT_EQ(answer_to_foreign_name("--output-dir"), "--output-dir is called --output here");
    EXPECT_EQ(answer_to_foreign_name("--logging-steps"),
              "--logging-steps is not needed here: --metrics has every step");
    const std::pair<const char*, const char*> others[] = {
        {"--tensor-model-parallel-size", "is --mesh tensor=N here"},
        {"--pipeline-model-parallel-size", "is --mesh pipe=N here"},
        {"--train-iters", "is called --steps here"},
        {"--seq-length", "is called --sequence here"},
        {"--clip-grad", "is called --clip here"},
        {"--micro-batch-size", "is called --micro-batch here"},
        {"--global-batch-size", "is called --global-batch here"},
        {"--lr-warmup-iters", "is called --warmup here"},
        {"--zero-stage", "is called --zero here"},
        {"--recompute-granularity", "is --recompute here, which takes whole layers"},
        {"--num-layers", "comes with the model here: a built-in name, or a folder whose config.json says it"},
        {"--use-distributed-optimizer", "is --zero 1 here"},
        {"--min-lr", "is --lr-min here, and a share of --lr"},
        {"--train_micro_batch_size_per_gpu", "is called --micro-batch here"},
        {"--gradient-clipping", "is called --clip here"},
    };
    for (const auto& [name, answer] : others) EXPECT_EQ(answer_to_foreign_name(name), std::string(name) + " " + answer);
    EXPECT_EQ(answer_to_foreign_name("--stpes"), "");
    for (const RunOption& option : run_options()) EXPECT_EQ(answer_to_foreign_name(option.flag()), "") << option.key;
    RunConfig config;
    EXPECT_ERROR(parse_run_config(config, "steps = 3\noutput_dir = \"run\"\n", "run.toml"),
                 "run.toml, line 2: output_dir is called output here");
}

} // namespace
} // namespace tutti

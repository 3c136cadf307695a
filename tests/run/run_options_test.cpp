// The table of options: what follows from it beside flags and TOML, and the names that it had or that others have.
#include "run/flags_page.h"
#include "run/foreign_names.h"
#include "run/kept_config.h"
#include "run/run_options.h"

#include "plan/settings_table.h"
#include "support/temporary_folder.h"

#include <set>

namespace tutti {

using namespace run;
namespace {

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
    EXPECT_EQ(answer_to_foreign_name("--stpes"), "");
    for (const RunOption& option : run_options()) EXPECT_EQ(answer_to_foreign_name(option.flag()), "") << option.key;
    RunConfig config;
    EXPECT_ERROR(parse_run_config(config, "steps = 3\noutput_dir = \"run\"\n", "run.toml"),
                 "run.toml, line 2: output_dir is called output here");
}

} // namespace
} // namespace tutti

#include "program.h"
#include "run/flags_page.h"
#include "run/run_options.h"

namespace tutti::test {
namespace {

TEST(Help, ComesWithoutArgumentsAndWithHelp) {
    for (const Words& words : {Words{}, Words{"--help"}, Words{"-h"}}) {
        const Outcome outcome = tutti_with(words);
        EXPECT_EQ(outcome.status, 0);
        for (const char* part : {"usage: tutti", "train", "inspect", "generate", "Examples:"})
            EXPECT_NE(outcome.output.find(part), std::string::npos) << part;
    }
}

TEST(Help, NamesEveryTrainingOptionAndItsDefault) {
    const Outcome outcome = tutti_with({"train", "--help"});
    EXPECT_EQ(outcome.status, 0);
    for (const run::RunOption& option : run::run_options())
        EXPECT_NE(outcome.output.find(option.positional() ? "MODEL" : option.flag() + (option.yes_or_no() ? "" : " ")),
                  std::string::npos)
            << option.key;
    for (const char* part : {"[cosine]", "[0.9,0.95]", "[gpt2-tiny]", "--config FILE", "--json", "llama-tiny"})
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part;
}

TEST(Help, OfPlanningGroupsOptionsByWhatTheyGoWith) {
    const std::string text = tutti_with({"plan", "--help"}).output;
    std::size_t at = 0;
    for (const char* part :
         {"--cluster FILE", "Instead of a search:", "--evaluate FILE", "With a search:", "--report FILE",
          "With --intra-op:", "--epsilon E", "gpt-2.5b", "a100-80", "infiniband-hdr", "kept free"}) {
        const std::size_t next = text.find(part, at);
        ASSERT_NE(next, std::string::npos) << part << "\n" << text;
        at = next;
    }
}

TEST(Help, FitsAHundredColumns) {
    for (const char* command :
         {"train", "inspect", "generate", "schedule", "simulate", "plan", "report", "profile", "tokenize"}) {
        const std::string text = tutti_with({command, "--help"}).output;
        for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
            EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
    }
}

TEST(Help, KnowsItsVersion) { EXPECT_TRUE(tutti_with({"--version"}).output.starts_with("tutti ")); }

TEST(Arguments, UnknownOnesAreToldWithWhatMayHaveBeenMeant) {
    expect_refusal({"trian"}, "did you mean train?");
    expect_refusal({"fly"}, "there is no command \"fly\"");
    expect_refusal({"--steps", "3"}, "a command comes first");
    expect_refusal({"train", "--step", "3"}, "no option \"--step\"; did you mean --steps?");
    expect_refusal({"train", "--leraning-rate=1"}, "no option \"--leraning-rate\"");
    expect_refusal({"train", "--global_batch", "8"}, "did you mean --global-batch?");
    expect_refusal({"train", "gpt2-tiny", "gpt2"}, "\"gpt2\" is one argument too many");
    expect_refusal({"inspect"}, "inspect what?");
    expect_refusal({"generate"}, "which model?");
}

TEST(Arguments, NamesOfOtherTrainersAreAnsweredWithTheNameHere) {
    expect_refusal({"train", "--learning-rate", "1e-4"}, "--learning-rate is called --lr here");
    expect_refusal({"train", "--output_dir=run"}, "--output_dir is called --output here");
    expect_refusal({"train", "--tensor-model-parallel-size", "2"}, "--tensor-model-parallel-size is --mesh tensor=N");
    expect_refusal({"generate", "gpt2-tiny", "--learning-rate", "1"}, "has no option \"--learning-rate\"");
}

TEST(Arguments, OlderNamesOfOptionsAreTakenAndNotShown) {
    expect_refusal({"train", "--copies", "two"}, "--copies is \"two\", and should be an integer");
    expect_refusal({"train", "--model-replicas", "two"}, "--model-replicas is \"two\", and should be an integer");
    const Words chimera = {"schedule", "chimera", "--pipe", "4", "--micro-batches", "8"};
    auto drawn = [&](const char* name) {
        Words words = chimera;
        words.insert(words.end(), {name, "4"});
        return tutti_with(words).output;
    };
    EXPECT_EQ(drawn("--copies"), drawn("--model-replicas"));
    for (const Words& words : {Words{"train"}, chimera}) {
        Words both = words;
        both.insert(both.end(), {"--copies", "2", "--model-replicas", "4"});
        expect_refusal(both,
                       "--model-replicas is 4 and --copies is 2, and they are two names of one setting: give one");
    }
    EXPECT_NE(drawn("--copies"), tutti_with(chimera).output);
    for (const char* command : {"train", "schedule"}) {
        const std::string help = tutti_with({command, "--help"}).output;
        EXPECT_NE(help.find("--model-replicas"), std::string::npos) << help;
        EXPECT_EQ(help.find("--copies"), std::string::npos) << help;
        EXPECT_EQ(help.find("--help-markdown"), std::string::npos) << help;
    }
}

TEST(Help, AsAPageIsThatOfTheDocs) {
    const Outcome outcome = tutti_with({"train", "--help-markdown"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(outcome.output == run::flags_page()) << outcome.output;
}

TEST(Arguments, ValuesThatAreMissingOrNoNumbersAreTold) {
    expect_refusal({"train", "--steps"}, "--steps needs a value");
    expect_refusal({"train", "--output", "--steps", "3"}, "--output needs a value, but --steps follows it");
    expect_refusal({"train", "--steps", "many"}, "--steps is \"many\", and should be an integer");
    expect_refusal({"train", "--steps", "1.5"}, "should be an integer");
    expect_refusal({"train", "--steps", "99999999999999999999"}, "should be an integer up to 9223372036854775807");
    expect_refusal({"train", "--steps", "-99999999999999999999"}, "should be an integer from 0");
    expect_refusal({"train", "--global-batch", "9223372036854775807"}, "it has to be from 0 to 1000000000");
    expect_refusal({"train", "--steps", "0"}, "steps is 0; it has to be at least 1");
    expect_refusal({"train", "--seed", "-1"}, "should be an integer from 0");
    expect_refusal({"train", "--ranks", "5000000000"}, "should be an integer up to 2147483647");
    expect_refusal({"train", "--threads", "5000000000"}, "should be an integer up to 1048576, or one for every rank");
    expect_refusal({"train", "--betas", "0.9"}, "two numbers, as in 0.9,0.95");
    expect_refusal({"train", "--lr-schedule", "cosmic"}, "constant, linear, cosine or wsd");
    expect_refusal({"train", "--dtype", "int64"}, "float32, bf16");
    expect_refusal({"train", "--resume=maybe"}, "");
    expect_refusal({"generate", "gpt2-tiny", "--prompt", "a", "--temperature", "-1"}, "a number from 0");
    expect_refusal({"generate", "gpt2-tiny", "--prompt", "a", "--tokens", "99999999999999999999"},
                   "an integer from 0 to 9223372036854775807");
}

} // namespace
} // namespace tutti::test

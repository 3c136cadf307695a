// tutti schedule and tutti simulate as a user runs them.
#include "program.h"

#include <set>

namespace tutti::test {

using namespace formats;
namespace {

Words schedule(const std::string& family, int ranks, int micro_batches, const Words& more = {}) {
    Words words = {
        "schedule", family, "--pipe", std::to_string(ranks), "--micro-batches", std::to_string(micro_batches)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

nlohmann::json json_of(Words words) {
    words.push_back("--json");
    const Outcome outcome = tutti_with(words);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return nlohmann::json::parse(outcome.output);
}

std::set<std::string> keys_of(const nlohmann::json& object) {
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.insert(key);
    return keys;
}

TEST(Schedule, JsonHasTheKeysThatOthersRead) {
    const nlohmann::json json = json_of(schedule("1f1b", 4, 8, {"--costs", "f=1,b=2,r=1"}));
    EXPECT_EQ(keys_of(json),
              (std::set<std::string>{"parameters", "time", "bubble", "window_idle", "peak_activations", "tasks"}));
    EXPECT_DOUBLE_EQ(json["time"].get<double>(), (8 + 4 - 1) * 4); // (M+P-1)(F+R+B)
    EXPECT_DOUBLE_EQ(json["bubble"].get<double>(), 3.0 / 11);
    EXPECT_EQ(json["window_idle"].size(), 4u);
    EXPECT_EQ(json["peak_activations"].size(), 4u);
    ASSERT_EQ(json["tasks"].size(), 64u);
    EXPECT_EQ(keys_of(json["tasks"][0]),
              (std::set<std::string>{"rank", "kind", "stage", "copy", "micro_batch", "start", "end"}));
    EXPECT_EQ(json["tasks"][0]["kind"], "F");
    EXPECT_EQ(json["parameters"]["family"], "1f1b");
}

TEST(Schedule, PeaksAreInWholeShares) {
    // Interleaved: min(M, P + (P-1)/V)
    const nlohmann::json json = json_of(schedule("interleaved", 4, 8, {"--stages-per-rank", "2"}));
    EXPECT_DOUBLE_EQ(json["peak_activations"][0].get<double>(), 5.5);
    EXPECT_DOUBLE_EQ(json["bubble"].get<double>(), 3.0 / 19);
}

TEST(Schedule, WithoutSplittingBIsTheWholeBackward) {
    auto time = [](const std::string& family, const std::string& costs, const Words& more = {}) {
        Words words = {"--costs", costs};
        words.insert(words.end(), more.begin(), more.end());
        return json_of(schedule(family, 4, 8, words))["time"].get<double>();
    };
    EXPECT_DOUBLE_EQ(time("1f1b", "f=1,b=1,w=1"), 11 * 2);
    EXPECT_DOUBLE_EQ(time("1f1b", "f=1,b=2"), 11 * 3);
    EXPECT_DOUBLE_EQ(time("1f1b", "f=1"), 11 * 3);
    // M(F+B+W) + (P-1)(F+B-W)
    EXPECT_DOUBLE_EQ(time("zb-1p", "f=1,b=1,w=1"), 8 * 3 + 3);
    // Beside one that splits, all do the same work.
    EXPECT_DOUBLE_EQ(time("1f1b", "f=1,b=1,w=1", {"--against", "zb-1p"}), 11 * 3);
    EXPECT_NE(tutti_with(schedule("1f1b", 2, 2, {"--costs", "w=1"})).output.find("w is not used"), std::string::npos);
}

TEST(Schedule, StagesMayCostDifferently) {
    // A last stage of twice the cost is what everyone waits for: F, F, then M of it, then B, B.
    for (const Words& words :
         {Words{"--stage-costs", "last=2"}, Words{"--stage-costs", "1,1,2"}, Words{"--costs", "f=1:1:2,b=2:2:4"}})
        EXPECT_DOUBLE_EQ(json_of(schedule("1f1b", 3, 4, words))["time"].get<double>(), 2 + 4 * 6 + 4);
}

TEST(Schedule, DrawsAndWritesFiles) {
    const TemporaryFolder folder;
    const std::string page = (folder / "page.html").string(), trace = (folder / "trace.json").string();
    const Outcome outcome =
        tutti_with(schedule("1f1b", 2, 3, {"--against", "gpipe", "--html", page, "--trace", trace}));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_NE(outcome.output.find("rank 1  "), std::string::npos);
    EXPECT_NE(outcome.output.find("1f1b and gpipe take the same time"), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find('\x1b'), std::string::npos);
    EXPECT_NE(tutti_with(schedule("1f1b", 2, 3, {"--colour", "always"})).output.find('\x1b'), std::string::npos);
    EXPECT_TRUE(read_text(page).starts_with("<!doctype html>"));
    EXPECT_EQ(read_json(trace)["traceEvents"][0]["args"]["name"], "1f1b rank 0");
}

TEST(Schedule, ComparesFamiliesAndSaysWhichDoNotExist) {
    const nlohmann::json json = json_of({"schedule", "compare", "--pipe", "4", "--micro-batches", "7"});
    std::map<std::string, nlohmann::json> families;
    for (const auto& entry : json["families"]) families[entry["family"]] = entry;
    EXPECT_GE(families.size(), 17u);
    EXPECT_EQ(keys_of(families["1f1b"]),
              (std::set<std::string>{"family", "time", "bubble", "peak_activations", "weights", "messages"}));
    EXPECT_EQ(families["1f1b"]["messages"], 2 * 7 * 3);
    EXPECT_NE(families["interleaved"]["reason"].get<std::string>().find("8 would be"), std::string::npos);
    const std::string table =
        tutti_with({"schedule", "compare", "1f1b", "chimera", "--pipe", "4", "--micro-batches", "8"}).output;
    EXPECT_NE(table.find("weights"), std::string::npos);
    EXPECT_EQ(
        json_of({"schedule", "compare", "chimera", "--pipe", "4", "--micro-batches", "8"})["families"][0]["weights"],
        2);
    EXPECT_NE(tutti_with({"schedule", "list"}).output.find("shifted-critical-path"), std::string::npos);
}

TEST(Schedule, SimulatingItsPlanGivesTheSame) {
    const TemporaryFolder folder;
    const std::string plan = (folder / "plan.json").string();
    for (const char* family : {"1f1b", "chimera", "zb-v", "shifted-critical-path"}) {
        const auto evaluated =
            json_of(schedule(family, 4, 8, {"--costs", "comm=0.3,r=1,sync=0.7,update=0.2", "--plan", plan}));
        EXPECT_EQ(evaluated, json_of({"simulate", plan})) << family;
    }
    EXPECT_NE(tutti_with({"simulate", plan}).output.find("rank 3"), std::string::npos);
}

// Seconds and bytes would be 6.82e-05 and 6.4102e+05.
TEST(Schedule, SimulatingThePlanOfAModelShowsShortNumbersWithTheirUnits) {
    const TemporaryFolder folder;
    const Outcome run = tutti_with({"train", reference("gpt2").string(), "--mesh", "pipe=2", "--comm", "threads",
                                    "--sequence", "16", "--global-batch", "8", "--micro-batch", "1", "--steps", "1",
                                    "--output", (folder / "run").string()});
    ASSERT_EQ(run.status, 0) << run.errors;
    const std::string plan = (folder / "run/plan.json").string(), text = tutti_with({"simulate", plan}).output;
    EXPECT_NE(text.find(", in us and KiB\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("e-0"), std::string::npos) << text;
    EXPECT_EQ(text.find("e+0"), std::string::npos) << text;
    EXPECT_LT(json_of({"simulate", plan}).at("time"), 1e-2); // JSON stays in seconds
}

TEST(Schedule, TheListTakesNoOptionsOfASchedule) {
    EXPECT_EQ(tutti_with({"schedule", "list", "--json"}).status, 0);
    for (const char* option : {"--pipe", "--memory", "--against", "--plan"})
        expect_refusal({"schedule", "list", option, "4"},
                       std::string("tutti schedule list shows all families and takes no ") + option);
    expect_refusal({"schedule", "list", "--blocking"}, "takes no --blocking");
}

TEST(Schedule, BadInputIsTold) {
    const TemporaryFolder folder;
    expect_refusal({"schedule"}, "which family?");
    expect_refusal({"schedule", "1f1b"}, "how many ranks?");
    expect_refusal({"schedule", "1fb1"}, "did you mean 1f1b?");
    expect_refusal(schedule("1f1b", 0, 8), "--pipe is \"0\", and should be an integer from 1");
    expect_refusal(schedule("1f1b", 4, 0), "--micro-batches is \"0\"");
    expect_refusal(schedule("1f1b", 4000, 99999), "can be shown");
    expect_refusal(schedule("interleaved", 4, 6), "6 is no multiple of it, 8 would be");
    expect_refusal(schedule("chimera", 3, 6), "4 pipe ranks would");
    expect_refusal(schedule("1f1b", 4, 8, {"--stages-per-rank", "2"}), "interleaved, hanayo and greedy take any");
    expect_refusal(schedule("1f1b", 4, 8, {"--against", "gpip"}), "did you mean gpipe?");
    expect_refusal(schedule("1f1b", 4, 8, {"--costs", "f=-1"}), "in --costs, f is \"-1\"");
    expect_refusal(schedule("1f1b", 4, 8, {"--costs", "f=1e308"}), "it has to be from 0 to 1e+18");
    expect_refusal(schedule("1f1b", 4, 8, {"--costs", "f=nan"}), "should be a number from 0");
    expect_refusal(schedule("1f1b", 4, 8, {"--costs", "g=1"}), "its keys are f, b, w, r, comm");
    expect_refusal(schedule("1f1b", 4, 8, {"--costs", "f"}), "it takes key=number");
    expect_refusal(schedule("1f1b", 4, 8, {"--costs", "f=1:2"}), "4 stages take 1, or 4");
    expect_refusal(schedule("1f1b", 4, 8, {"--stage-costs", "1,2"}), "2 factors; there are 4 stages");
    expect_refusal(schedule("1f1b", 4, 8, {"--stage-costs", "4=2"}), "names stage 4");
    expect_refusal(schedule("1f1b", 4, 8, {"--recompute", "late"}), "never, on-gradient or early");
    expect_refusal(schedule("1f1b", 4, 8, {"--in-flight", "2"}), "greedy, chimera, mixpipe and hanayo take any number");
    expect_refusal(schedule("1f1b", 4, 8, {"--memory", "2"}), "takes a cap of 4");
    expect_refusal(schedule("greedy", 4, 8, {"--memory", "0.5"}), "takes a cap of 1");
    expect_refusal({"schedule", "compare", "1f1b", "--pipe", "4", "--micro-batches", "8", "--memory", "0.5"},
                   "no family exists for these parameters");
    expect_refusal(schedule("1f1b", 4, 8, {"--html", (folder / "absent/page.html").string()}), "cannot write");
    expect_refusal(schedule("1f1b", 4, 8, {"--trace", folder.path().string()}), "cannot write");
    const std::string plan = (folder / "plan.json").string(), page = (folder / "page").string();
    ASSERT_EQ(tutti_with(schedule("1f1b", 2, 2, {"--plan", plan})).status, 0);
    expect_refusal({"simulate", plan, "--html", plan}, "which is read as the plan, and would be lost");
    expect_refusal(schedule("1f1b", 2, 2, {"--plan", page, "--html", page}), "each needs a file of its own");
    expect_refusal(schedule("1f1b", 2, 2, {"--trace", page, "--html", page}), "each needs a file of its own");
    expect_refusal({"simulate"}, "simulate what?");
    expect_refusal({"simulate", (folder / "absent").string()}, "cannot read");
}

} // namespace
} // namespace tutti::test

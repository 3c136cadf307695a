// tutti plan as a user meets it: what it says of bad input before it searches, and the plans that come of it.
#include "program.h"

#include <chrono>
#include <set>
#include <thread>

namespace tutti::test {

using namespace formats;
namespace {

constexpr const char* four_devices = R"([[devices]]
name = "small"
memory = "4GiB"
flops16 = "2TFLOPS"
flops32 = "1TFLOPS"
bandwidth = "20GB/s"

[[nodes]]
devices = 4
device = "small"
latency = "5us"
bandwidth = "5GB/s"
)";

std::string replaced(std::string text, const std::string& part, const std::string& by) {
    const std::size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return text.replace(at, part.size(), by);
}

class PlanCommand : public testing::Test {
  protected:
    std::string cluster(const std::string& text = four_devices) {
        folder_.write("cluster.toml", text);
        return (folder_ / "cluster.toml").string();
    }
    // Of two layers, so that searching takes little time; nothing but its config.json.
    std::string small_model() {
        fs::create_directories(folder_ / "small");
        folder_.write("small/config.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64,
            "n_layer": 2, "n_head": 2})");
        return (folder_ / "small").string();
    }
    Words plan_small(const std::string& file, const Words& more = {}) {
        Words words = plan(file, more);
        words[1] = small_model();
        return words;
    }
    Words plan(const std::string& file, const Words& more = {}) {
        Words words = {"plan", "gpt2-tiny", "--cluster", file, "--global-batch", "4", "--sequence", "32"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    void expect_cluster_refusal(const std::string& text, const std::string& part) {
        expect_refusal(plan(cluster(text)), part);
    }
    // A plan of that cluster, edited.
    fs::path edited(const std::function<void(nlohmann::json&)>& change) {
        const fs::path original = folder_ / "plan.json";
        if (!fs::exists(original)) {
            const Outcome outcome = tutti_with(plan(cluster(), {"--dtype", "float32", "--output", original.string()}));
            EXPECT_EQ(outcome.status, 0) << outcome.errors;
        }
        nlohmann::json json = read_json(original);
        change(json);
        folder_.write("edited.json", json.dump());
        return folder_ / "edited.json";
    }

    TemporaryFolder folder_;
};

TEST_F(PlanCommand, ClustersThatMakeNoSenseAreRefused) {
    expect_cluster_refusal("", "the cluster has no devices; [[nodes]] says which there are");
    expect_cluster_refusal(replaced(four_devices, "devices = 4", "devices = 0"),
                           "line 9: devices is 0, and should be an integer from 1");
    expect_cluster_refusal(replaced(four_devices, "device = \"small\"", "device = \"smal\""),
                           "unknown device \"smal\"; did you mean small?");
    expect_cluster_refusal(replaced(four_devices, "\"5GB/s\"", "\"-5GB/s\""),
                           "bandwidth is \"-5GB/s\", and should be from 1 B/s");
    expect_cluster_refusal(replaced(four_devices, "devices = 4", "devices = 4\ncount = 6") +
                               "[[levels]]\nname = \"rack\"\nsize = 4\nlink = \"infiniband-hdr\"\n",
                           "level rack joins 4 nodes each, which does not divide the 6 there are; 3 or 6 would");
    expect_cluster_refusal(replaced(four_devices, "devices = 4", "devices = 4\ncount = 6"),
                           "there are 6 nodes, and no [[levels]] says what connects them");
    expect_refusal(plan((folder_ / "absent.toml").string()), "cannot read");
}

TEST_F(PlanCommand, BatchesThatNoScalingDividesAreRefused) {
    Words words = plan(cluster(replaced(four_devices, "devices = 4", "devices = 4\ncount = 128") +
                               "[[levels]]\nlink = \"infiniband-hdr\"\n"));
    words[5] = "7"; // 10 pipeline ranks of 4 at most
    expect_refusal(words, "no scaling divides a global batch of 7 over 512 devices; 11 would work");
}

// Evaluated on its own cluster, a plan takes what the search said, by the same names.
TEST_F(PlanCommand, APlanIsEvaluatedToWhatWasPlanned) {
    const std::string file = (folder_ / "made.json").string();
    const Outcome planned = tutti_with(plan_small(cluster(), {"--output", file, "--json"}));
    ASSERT_EQ(planned.status, 0) << planned.errors;
    const Words evaluate = {"plan", small_model(), "--cluster", cluster(), "--evaluate", file};
    Words as_json = evaluate;
    as_json.emplace_back("--json");
    const Outcome evaluated = tutti_with(as_json);
    ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
    const nlohmann::json report = nlohmann::json::parse(planned.output), told = report["plans"][0],
                         json = nlohmann::json::parse(evaluated.output);
    for (const char* key : {"step_seconds", "tokens_per_second", "bubble"}) EXPECT_EQ(json[key], told[key]) << key;
    EXPECT_EQ(json["seconds"], told["terms"]);
    ASSERT_EQ(json["memory_bytes_of_pipe_ranks"].size(), report["memory"].size());
    for (std::size_t rank = 0; rank < report["memory"].size(); ++rank) {
        nlohmann::json bytes = json["memory_bytes_of_pipe_ranks"][rank], one = report["memory"][rank];
        bytes.erase("total");
        one.erase("rank");
        EXPECT_EQ(bytes, one);
    }
    const Outcome text = tutti_with(evaluate);
    EXPECT_EQ(text.output.find('_'), std::string::npos) << text.output;
    cluster(replaced(replaced(four_devices, "\"small\"", "\"other\""), "\"small\"", "\"other\""));
    expect_refusal(evaluate, "the plan has rank 0 on device 0, small in node 0, which is other in node 0");
}

TEST_F(PlanCommand, IntraOpExplainsTheWordsOfItsTables) {
    const std::string text =
        tutti_with({"plan", small_model(), "--intra-op", "--mesh", "tensor=2", "--micro-batch", "4"}).output;
    for (const char* word :
         {"split", "gathered", "redundant", "states", "saved", "transient", "predicted", "compiled", "micro-batch"}) {
        EXPECT_NE(text.find(std::string(word) + ": "), std::string::npos) << word << "\n" << text;
        EXPECT_NE(text.find(std::string(" ") + word), std::string::npos) << word << "\n" << text;
    }
}

TEST_F(PlanCommand, IntraOpKeepsTheKeysOfItsJson) {
    const auto all = nlohmann::json::parse(
        tutti_with({"plan", small_model(), "--intra-op", "--mesh", "tensor=2", "--micro-batch", "4", "--json"}).output);
    for (const char* key : {"the default", "ZeRO-3"}) EXPECT_TRUE(all["compared"].contains(key)) << all["compared"];
}

// What --intra-op says of compiled plans is what a run with the plan says, and least of all.
TEST_F(PlanCommand, CompiledBytesAreThoseOfTheRun) {
    const std::string file = (folder_ / "made.json").string();
    for (const auto& [ranks, batch] : {std::pair("2", "1"), {"2", "4"}}) {
        const Outcome outcome =
            tutti_with({"plan", small_model(), "--intra-op", "--mesh", fmt::format("tensor={}", ranks), "--micro-batch",
                        batch, "--dtype", "float32", "--output", file, "--json"});
        ASSERT_EQ(outcome.status, 0) << outcome.errors;
        const nlohmann::json json = nlohmann::json::parse(outcome.output);
        const std::int64_t taken = json["compared"]["this plan"]["program_bytes"];
        for (const auto& [name, one] : json["compared"].items())
            if (one.contains("program_bytes")) {
                EXPECT_LE(taken, one["program_bytes"].get<std::int64_t>()) << name;
            }
        for (const nlohmann::json& one : json["plans"]) EXPECT_LE(taken, one["program_bytes"].get<std::int64_t>());
        auto bytes_of = [&](const Words& how) {
            Words words = {"train",  small_model(), "--from-scratch", "--device", "cpu",       "--data", "builtin",
                           "--comm", "threads",     "--threads",      "1",        "--dry-run", "--json"};
            words.insert(words.end(), how.begin(), how.end());
            const Outcome run = tutti_with(words);
            EXPECT_EQ(run.status, 0) << run.errors;
            const nlohmann::json memory = json_lines(run.output).at(0)["summary"]["memory_bytes"];
            std::int64_t bytes = 0;
            for (const char* part : {"weights", "gradients", "master", "moments", "activations", "buffers"})
                bytes += memory[part].get<std::int64_t>();
            return static_cast<double>(bytes);
        };
        // The arena begins the kernels' workspace at a multiple of 256 bytes.
        const double by_default = json["compared"]["the default"]["program_bytes"];
        EXPECT_NEAR(bytes_of({"--plan", file}), static_cast<double>(taken), 256);
        EXPECT_NEAR(bytes_of({"--mesh", fmt::format("tensor={}", ranks), "--micro-batch", batch, "--global-batch",
                              batch, "--sequence", "64"}),
                    by_default, 256);
    }
}

TEST_F(PlanCommand, ModelsThatAreTooLargeAreRefused) {
    Words words = plan(cluster());
    words[1] = "gpt2-xl";
    expect_refusal(words, "GiB, and all devices together have 16.00 GiB");
}

// The changes that are offered, each tried.
TEST_F(PlanCommand, WhatWouldFitDoesFit) {
    const std::string tight = replaced(four_devices, "4GiB", "0.4MiB");
    const Outcome outcome = tutti_with(plan_small(cluster(tight), {"--time-limit", "600"})); // however slow the machine
    EXPECT_EQ(outcome.status, 2);
    auto number_after = [&](const std::string& said) {
        const std::size_t at = outcome.errors.find(said);
        EXPECT_NE(at, std::string::npos) << outcome.errors;
        return at == std::string::npos ? 0.0 : std::atof(outcome.errors.c_str() + at + said.size());
    };
    const auto devices = static_cast<int>(number_after("what would fit: "));
    EXPECT_GT(devices, 4);
    EXPECT_NE(outcome.errors.find("devices instead of 4"), std::string::npos) << outcome.errors;
    const Outcome more = tutti_with(plan_small(cluster(replaced(tight, "s = 4", fmt::format("s = {}", devices)))));
    EXPECT_EQ(more.status, 0) << more.errors;
    const double kilobytes = number_after("or devices of ");
    EXPECT_GT(kilobytes, 400);
    const Outcome larger =
        tutti_with(plan_small(cluster(replaced(tight, "0.4MiB", fmt::format("{:.2f}KiB", kilobytes + 0.01)))));
    EXPECT_EQ(larger.status, 0) << larger.errors;
    const auto host = static_cast<int>(number_after("KiB, or ")); // whole GiB
    EXPECT_GT(host, 0);
    EXPECT_NE(outcome.errors.find("of host memory"), std::string::npos) << outcome.errors;
    const std::string line = fmt::format("devices = 4\nhost_memory = \"{}GiB\"", host);
    const Outcome offloaded = tutti_with(plan_small(cluster(replaced(tight, "devices = 4", line))));
    EXPECT_EQ(offloaded.status, 0) << offloaded.errors;
}

// The deepest model that fits: one layer more does not.
TEST_F(PlanCommand, TellsHowManyLayersFit) {
    const std::string tight = replaced(four_devices, "4GiB", "1MiB");
    const Outcome outcome = tutti_with(plan_small(cluster(tight), {"--what-if", "layers", "--json"}));
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    std::int64_t most = 0, least = 1'000'000; // that fits, that does not
    for (const nlohmann::json& one : nlohmann::json::parse(outcome.output)) {
        const std::int64_t layers = one["layers"];
        EXPECT_GT(one["parameters"].get<std::int64_t>(), 256 * 64 + layers * 12 * 64 * 64);
        if (one["fits"])
            most = std::max(most, layers);
        else
            least = std::min(least, layers);
    }
    EXPECT_GT(most, 2);
    EXPECT_EQ(least, most + 1);
}

TEST_F(PlanCommand, GradientsAndMasterAreNoNarrowerThanWeights) {
    expect_refusal(plan(cluster(), {"--dtype", "float32", "--master", "bf16"}),
                   "--master is bf16, and --dtype is float32; master weights in bf16 need --dtype bf16");
    expect_refusal(plan(cluster(), {"--dtype", "float32", "--gradients", "bf16"}), "need --dtype bf16");
    expect_refusal(plan(cluster(), {"--gradients", "fp8"}), "should be float32 or bf16");
}

// What would be ignored is refused, with what it goes with.
TEST_F(PlanCommand, OptionsGoWithWhatIsAskedFor) {
    const std::string file = cluster();
    for (const Words& one : {Words{"--mesh", "tensor=4"},
                             {"--micro-batch", "4"},
                             {"--device", "h100"},
                             {"--epsilon", "2"},
                             {"--in-flight", "2"},
                             {"--picture", "x.html"}})
        expect_refusal(plan(file, one), one[0] + " goes with --intra-op");
    for (const Words& one : {Words{"--output", "x"}, {"--report", "x"}, {"--compare"}})
        for (const Words& mode : {Words{"--what-if", "nodes"}, {"--evaluate", "x"}}) {
            Words more = one;
            more.insert(more.end(), mode.begin(), mode.end());
            expect_refusal(plan(file, more), one[0] + " goes with a search");
            expect_refusal(plan(file, more), ", not with " + mode[0]);
        }
    expect_refusal(plan(file, {"--evaluate", "x", "--time-limit", "3"}), "--time-limit goes with a search, --what-if");
    expect_refusal(plan(file, {"--evaluate", "x", "--what-if", "nodes"}), "--what-if and --evaluate ask for different");
    expect_refusal(plan(file, {"--evaluate", "x", "--intra-op"}), "--evaluate and --intra-op ask for different");
    const Words within = {"plan", "gpt2-tiny", "--intra-op", "--mesh", "tensor=2"};
    for (const Words& one :
         {Words{"--global-batch", "8"}, {"--profile", "x"}, {"--report", "x"}, {"--master", "bf16"}}) {
        Words words = within;
        words.insert(words.end(), one.begin(), one.end());
        expect_refusal(words, one[0] + " goes with a search");
    }
    for (const char* limit : {"0", "-1", "nan"})
        expect_refusal(plan(file, {"--time-limit", limit}), "and should be a number from 0.01");
}

TEST_F(PlanCommand, EvaluatingRefusesWhatContradictsThePlan) {
    const std::string file = edited([](auto&) {}).string();
    auto evaluating = [&](const Words& more) {
        Words words = {"plan", "gpt2-tiny", "--cluster", cluster(), "--evaluate", file};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    expect_refusal(evaluating({"--global-batch", "99"}), "--global-batch is 99, but the plan " + file + " says 4");
    expect_refusal(evaluating({"--sequence", "64"}), "--sequence is 64, but the plan");
    expect_refusal(evaluating({"--dtype", "bf16"}), "--dtype is bf16, but the plan");
    expect_refusal(evaluating({"--moments", "bf16"}), "--moments is bf16, but the plan");
    const Outcome same = tutti_with(evaluating({"--global-batch", "4", "--sequence", "32", "--dtype", "float32"}));
    EXPECT_EQ(same.status, 0) << same.errors;
}

TEST_F(PlanCommand, RanksKeepToTheMemoryCap) {
    const Outcome outcome = tutti_with(plan_small(cluster(), {"--memory-cap", "64MiB", "--json"}));
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const nlohmann::json found = nlohmann::json::parse(outcome.output);
    ASSERT_FALSE(found["plans"].empty());
    for (const nlohmann::json& one : found["plans"]) EXPECT_LE(one["memory"].get<std::int64_t>(), 64 << 20) << one;
    expect_refusal(plan_small(cluster(), {"--memory-cap", "0.1MiB"}), "with 102.40 KiB of every device: ");
}

// It may be too short for any plan.
TEST_F(PlanCommand, TheSearchEndsAtItsTimeLimit) {
    const Outcome outcome = tutti_with(plan(cluster(), {"--time-limit", "0.01", "--json"}));
    if (outcome.status != 0) {
        EXPECT_NE(outcome.errors.find("the search came to its time limit after"), std::string::npos) << outcome.errors;
        return;
    }
    const nlohmann::json json = nlohmann::json::parse(outcome.output);
    EXPECT_TRUE(json["search"]["stopped"]);
    EXPECT_EQ(json["plans"][0]["name"], "best so far");
}

TEST_F(PlanCommand, WhatIfThatIsStoppedKeepsWhatIsKnown) {
    const Terminal terminal;
    Process process(plan(cluster(), {"--what-if", "devices"}), terminal.name());
    std::string shown;
    while (process.running() && shown.find("2 of 5, 2 devices: ") == std::string::npos) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        shown += terminal.read();
    }
    process.signal(SIGINT);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    shown += terminal.read();
    const std::string table = shown.substr(std::min(shown.find("tokens/s"), shown.size()));
    EXPECT_NE(table.find("1 device "), std::string::npos) << shown;
    EXPECT_EQ(table.find("8 devices"), std::string::npos) << shown;
    EXPECT_NE(process.errors().find("--what-if was stopped after"), std::string::npos) << process.errors();
}

// Not after the search, which may take long.
TEST_F(PlanCommand, FilesThatCannotBeWrittenAreRefusedFirst) {
    const std::string absent = (folder_ / "absent" / "file").string(), own = folder_.path().string();
    for (const char* option : {"--output", "--report"}) {
        expect_refusal(plan(cluster(), {option, absent}), "there is no folder");
        expect_refusal(plan(cluster(), {option, own}), "it is a folder");
    }
    expect_refusal({"profile", "gpt2-tiny", "--output", absent}, "there is no folder");
}

TEST_F(PlanCommand, WhatIsReadIsNotWrittenOver) {
    const std::string file = cluster(), other = (folder_ / "new").string();
    const std::string again = (folder_ / "small" / ".." / "cluster.toml").string(); // by another name
    for (const std::string& same : {file, again})
        for (const char* option : {"--output", "--report"})
            expect_refusal(plan_small(file, {option, same}), "which is read as --cluster, and would be lost");
    const std::string config = (folder_ / "small" / "config.json").string();
    expect_refusal(plan_small(file, {"--output", config}), "which is read as the model");
    expect_refusal(plan_small(file, {"--output", other, "--report", other}), "each needs a file of its own");
    folder_.write("notes.txt", "mine");
    expect_refusal(plan_small(file, {"--output", (folder_ / "notes.txt").string()}), "is there and is no plan");
    expect_refusal({"plan", small_model(), "--intra-op", "--mesh", "tensor=2", "--output", config},
                   "which is read as the model");
    const std::string made = edited([](auto&) {}).string();
    expect_refusal({"profile", "gpt2-tiny", "--output", made, "--replace"}, "--replace writes over profiles only");
    EXPECT_EQ(read_text(folder_ / "notes.txt"), "mine");
    EXPECT_EQ(read_text(file), four_devices);
    EXPECT_EQ(tutti_with(plan_small(file, {"--output", made})).status, 0); // a plan may go
}

TEST_F(PlanCommand, WhatIfVariesTheDevicesOfASingleNode) {
    const Outcome outcome = tutti_with(plan_small(cluster(), {"--what-if", "devices", "--json"}));
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    std::vector<int> devices;
    for (const nlohmann::json& one : nlohmann::json::parse(outcome.output)) devices.push_back(one["devices"]);
    EXPECT_EQ(devices, (std::vector{1, 2, 4, 6, 8}));
    expect_refusal(plan(cluster(), {"--what-if", "nodes"}), "no level of links that would join another");
    expect_refusal(plan(cluster(), {"--what-if", "luck"}), "it varies nodes, devices, global-batch or layers");
}

TEST_F(PlanCommand, AReportHasTheCurveOverDevices) {
    const fs::path page = folder_ / "plan.html";
    const Outcome outcome = tutti_with(plan_small(cluster(), {"--report", page.string(), "--json"}));
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(json["scaling"].size(), 5u);
    EXPECT_GT(json["search"]["curve_seconds"], 0.0);
    EXPECT_NE(read_text(page).find("\"scaling\":[{\"devices\":1,"), std::string::npos);
    std::set<std::pair<double, std::string>> seen; // of two equal plans one is shown
    for (const nlohmann::json& one : json["plans"])
        EXPECT_TRUE(seen.insert({one["step_seconds"].get<double>(), one["plan"].get<std::string>()}).second ||
                    one["name"].get<std::string>().size() > 2)
            << one;
}

// Four devices with slow links between them, where a pipeline is fastest.
constexpr const char* four_nodes = R"([[devices]]
name = "small"
memory = "4GiB"
flops16 = "0.02TFLOPS"
flops32 = "0.01TFLOPS"
bandwidth = "20GB/s"

[[nodes]]
count = 4
devices = 1
device = "small"
latency = "5us"
bandwidth = "5GB/s"

[[levels]]
name = "fabric"
latency = "20us"
bandwidth = "0.02GB/s"
)";

TEST_F(PlanCommand, NamesOfFoldersStayOnTheirLine) {
    const std::string name = "a\x1b[2J\x7f\nb";
    fs::rename(small_model(), folder_ / name);
    Words words = plan(cluster());
    words[1] = (folder_ / name).string();
    const Outcome text = tutti_with(words);
    ASSERT_EQ(text.status, 0) << text.errors;
    EXPECT_TRUE(text.output.starts_with((folder_ / "a\\x1b[2J\\x7f\\x0ab on ").string())) << text.output;
    EXPECT_EQ(text.output.find_first_of("\x1b\x7f"), std::string::npos) << text.output;
    words.emplace_back("--json");
    const Outcome json = tutti_with(words);
    EXPECT_EQ(json.output.find_first_of("\x1b\x7f"), std::string::npos) << json.output;
    EXPECT_EQ(nlohmann::json::parse(json.output)["title"].get<std::string>().find(words[1] + " on "), 0u);
}

// The picture, the bars and the tables of a page, and what JSON and text say: one number each.
TEST_F(PlanCommand, APageAgreesWithItself) {
    const std::string page = (folder_ / "plan.html").string();
    Words words = plan(cluster(four_nodes), {"--report", page});
    const Outcome text = tutti_with(words);
    ASSERT_EQ(text.status, 0) << text.errors;
    words.emplace_back("--json");
    const Outcome outcome = tutti_with(words);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(outcome.output);
    const std::string whole = read_text(page), mark = "id=\"data\">";
    const std::size_t begin = whole.find(mark) + mark.size();
    const nlohmann::json data = nlohmann::json::parse(whole.substr(begin, whole.find("</script>", begin) - begin));
    ASSERT_EQ(data["timelines"].size(), 1u) << json["plan"];
    const nlohmann::json &timeline = data["timelines"][0], &shown = data["plan"], &chosen = json["plans"][0];
    EXPECT_EQ(timeline["bubble"], chosen["bubble"]);
    EXPECT_EQ(shown["plans"][0]["bubble"], chosen["bubble"]);
    EXPECT_GT(chosen["bubble"], 0.0);
    EXPECT_GT(chosen["terms"]["messages and gradients"], 0.0); // which the bubble leaves out
    EXPECT_NEAR(timeline["time"], chosen["step_seconds"], 1e-9 * chosen["step_seconds"].get<double>());

    const auto& categories = shown["categories"];
    const auto activations = std::ranges::find(categories, "activations") - categories.begin();
    double most = 0;
    ASSERT_EQ(timeline["rows"].size(), json["memory"].size());
    for (std::size_t rank = 0; rank < json["memory"].size(); ++rank) {
        const nlohmann::json& row = timeline["rows"][rank];
        const double bytes = json["memory"][rank]["activations"];
        EXPECT_EQ(shown["memory"][rank]["parts"][static_cast<std::size_t>(activations)].get<double>(), bytes);
        EXPECT_EQ(row["peak"].get<double>(), bytes);
        most = std::max(most, bytes);
        double held = 0;
        for (const nlohmann::json& point : row["held"]) held = std::max(held, point["activations"].get<double>());
        EXPECT_LE(held, bytes + 1);
        EXPECT_GE(held, 0.8 * bytes) << "of what memory has room for, something is never held";
    }
    EXPECT_EQ(timeline["peak"].get<double>(), most);

    EXPECT_EQ(shown["searched"]["evaluated"], json["search"]["plans"]);
    EXPECT_LE(shown["searched"]["count"], json["search"]["plans"]);
    std::string said = text.output;
    std::erase(said, ','); // of thousands
    EXPECT_NE(said.find(fmt::format("\n{} plans were evaluated", json["search"]["plans"].get<int>())),
              std::string::npos)
        << text.output;
}

TEST_F(PlanCommand, PlansEditedIntoInconsistencyAreRefused) {
    auto refused = [&](const std::function<void(nlohmann::json&)>& change, const std::string& part) {
        const std::string file = edited(change).string();
        expect_refusal({"train", "gpt2-tiny", "--device", "cpu", "--plan", file, "--dry-run"}, part);
        expect_refusal({"inspect", file}, part);
    };
    refused([](auto& plan) { plan["mesh"] = {{"data", 3}, {"pipe", 1}, {"tensor", 1}}; }, "edited.json: ");
    refused([](auto& plan) { plan["workload"]["micro_batch"] = 3; }, "global_batch 4 is not a multiple of");
    refused([](auto& plan) { plan["devices"]["ranks"][0] = 9; }, "rank 0 has device 9, and the nodes have 4 devices");
    refused([](auto& plan) { plan["devices"]["ranks"][0] = plan["devices"]["ranks"][1]; }, "each needs its own");
    refused([](auto& plan) { plan["devices"]["nodes"][0]["devices"] = 2; }, "and the nodes have 2 devices");
    refused([](auto& plan) { plan["zero"] = 7; }, "zero is 7");
    refused([](auto& plan) { plan["recompute"] = {{99}, {99}, {99}, {99}, {99}}; }, "edited.json: recompute");
    refused([](auto& plan) { plan["tutti_plan"] = 99; }, "plan of version 99");
    const std::string whole = edited([](auto&) {}).string();
    expect_refusal({"train", "--plan", whole}, "which model? ");
    expect_refusal({"train", "llama-tiny", "--device", "cpu", "--comm", "threads", "--plan", whole}, "is a plan for");
    expect_refusal({"train", "gpt2-tiny", "--plan", whole, "--ranks", "3"}, "ranks");
}

std::vector<double> losses(const fs::path& plan, const fs::path& metrics, const Words& more) {
    Words words = {"train",   "gpt2-tiny", "--device", "cpu",       "--plan",         plan.string(), "--comm",
                   "threads", "--steps",   "3",        "--metrics", metrics.string(), "--seed",      "3"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = tutti_with(words);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    std::vector<double> found;
    for (const nlohmann::json& line : json_lines(read_text(metrics)))
        if (line.contains("loss")) found.push_back(line["loss"]);
    fs::remove(metrics);
    return found;
}

// Which device takes which rank changes nothing of what is computed; nor do unequal threads.
TEST_F(PlanCommand, LossesDoNotDependOnDevices) {
    const fs::path metrics = folder_ / "metrics.jsonl";
    const auto as_it_comes = losses(edited([](auto& plan) { plan.erase("devices"); }), metrics, {"--threads", "1"});
    EXPECT_EQ(as_it_comes.size(), 3u);
    const fs::path other = edited([](auto& plan) { plan["devices"]["ranks"] = {2, 0, 3, 1}; });
    EXPECT_EQ(losses(other, metrics, {"--threads", "1"}), as_it_comes);
    const auto unequal = losses(other, metrics, {"--threads", "2,1,1,1"});
    ASSERT_EQ(unequal.size(), 3u);
    for (std::size_t i = 0; i < unequal.size(); ++i) EXPECT_NEAR(unequal[i], as_it_comes[i], 3e-6 * unequal[i]);
    expect_refusal({"train", "gpt2-tiny", "--ranks", "4", "--threads", "2,1"}, "threads names 2 numbers for 4 ranks");
    expect_refusal({"train", "gpt2-tiny", "--ranks", "2", "--threads", "2,0"}, "--threads is \"2,0\", and should be");
}

TEST_F(PlanCommand, ProfilesAreNotWrittenOverByOthers) {
    const std::string file = (folder_ / "profile.json").string(), beside = (folder_ / "a\x1b[2J\nb").string();
    Words words = {"profile", "gpt2-tiny", "--threads", "1", "--sequence", "16", "--output", beside};
    const Outcome profiled = tutti_with(words);
    ASSERT_EQ(profiled.status, 0) << profiled.errors;
    EXPECT_TRUE(profiled.output.ends_with("\nkept in " + (folder_ / "a\\x1b[2J\\x0ab").string() + '\n'))
        << profiled.output; // a name stays on its line
    fs::rename(beside, file);
    words.back() = file;
    nlohmann::json json = read_json(file);
    EXPECT_EQ(json["machine"]["model"].get<std::string>().find("1 threads"), std::string::npos);
    json["transport"] = "mpi";
    json["ranks"] = 2;
    folder_.write("profile.json", json.dump());
    Words two = words;
    two.insert(two.end(), {"--ranks", "2", "--comm", "threads"});
    expect_refusal(two, "was measured with ranks that talk by mpi, and here they do by threads");
    two.insert(two.end(), {"--tensor", "3"});
    expect_refusal(two, "--tensor is 3, which does not divide the 2 ranks");
    expect_refusal({"profile", "gpt2-tiny", "--ranks", "2", "--threads", "2,1"}, "measure every kind by itself");
}

} // namespace
} // namespace tutti::test

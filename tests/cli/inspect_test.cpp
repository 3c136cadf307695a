// Names in files and of files are shown, never obeyed by a terminal.
#include "cli/program.h"
#include "terminal/shown.h"
#include "terminal/words.h"

#include <algorithm>

namespace tutti {

using namespace formats;
using namespace test;
namespace {

const std::string hostile = "\x1b]0;owned\x07\x1b[2J\x7f\xc2\x9b"
                            "31m\nsecond line\t\r";

bool is_plain(const std::string& text) {
    return text.find("\xc2\x9b") == std::string::npos && std::ranges::none_of(text, [](char c) {
               return (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == '\x7f';
           });
}

void expect_plain(const Words& words, const std::string& part) {
    for (const bool json : {false, true}) {
        Words all = words;
        if (json) all.push_back("--json");
        const Outcome outcome = tutti_with(all);
        EXPECT_TRUE(is_plain(outcome.output)) << outcome.output;
        EXPECT_TRUE(is_plain(outcome.errors)) << outcome.errors;
        const std::string shown = outcome.output + outcome.errors;
        EXPECT_NE(shown.find(json && outcome.status == 0 ? "\\u001b" : part), std::string::npos) << shown;
    }
}

TEST(Inspect, NamesAreShownOnOneLineWithoutControlCharacters) {
    EXPECT_EQ(terminal::name_to_show("a\tb\nc\x1b"), "a\\x09b\\x0ac\\x1b");
    EXPECT_EQ(terminal::safe_to_show("a\tb\nc\x1b"), "a\tb\nc\\x1b");
    EXPECT_EQ(terminal::name_to_show("Größe \xff"), "Größe \xef\xbf\xbd");
    EXPECT_EQ(terminal::json_to_show({{"a", "\x1b\x7f\xc2\x9b\xff"}}),
              "{\"a\":\"\\u001b\\u007f\\u009b\\ufffd\"}\n"); // JSON alone escapes the first
}

TEST(Inspect, WordsAndCellsThatAreLaidOutStayOnTheirLine) {
    const std::vector<terminal::Definition> lines = {{"output", {hostile, "next"}}};
    const std::vector<std::vector<std::string>> table = {{hostile, "b"}, {"c", hostile}};
    for (const std::string& text : {terminal::define(lines, 10000), terminal::lay_out(table)}) {
        EXPECT_TRUE(is_plain(text)) << text;
        EXPECT_EQ(text.find("\nsecond line"), std::string::npos) << text;
        EXPECT_NE(text.find("\\x0asecond line"), std::string::npos) << text;
    }
}

// A schedule decides it, whatever the plan would ask of a rank without one.
TEST(Inspect, SaysOfAPlanWhetherItsScheduleSplitsTheBackward) {
    const TemporaryFolder folder;
    for (const auto& [family, expected] :
         {std::pair{"1f1b", "with input gradients"}, {"zb-1p", "tasks of their own"}, {"zb-v", "tasks of their own"}}) {
        const std::string plan = (folder / (std::string(family) + ".json")).string();
        EXPECT_EQ(tutti_with({"schedule", family, "--pipe", "2", "--micro-batches", "4", "--plan", plan}).status, 0);
        const std::string shown = tutti_with({"inspect", plan}).output;
        const std::size_t at = shown.find("weight gradients");
        ASSERT_NE(at, std::string::npos) << shown;
        const std::string line = shown.substr(at, shown.find('\n', at) - at);
        EXPECT_TRUE(line.ends_with(expected)) << line;
    }
}

// Wherever a command says which files it reads and writes.
TEST(Names, OfFilesStayOnTheirLineInWhatCommandsSay) {
    const TemporaryFolder folder;
    const fs::path own = folder / hostile;
    fs::create_directory(own);
    const std::string data = folder.write(hostile + "/data.txt", std::string(5000, 'a')).string();
    auto expect_on_its_line = [&](const Words& words, const std::vector<std::string>& parts) {
        const Outcome outcome = tutti_with(words);
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        EXPECT_TRUE(is_plain(outcome.output)) << outcome.output;
        EXPECT_EQ(outcome.output.find("\nsecond line"), std::string::npos) << outcome.output;
        const std::string shown = terminal::name_to_show(own.string());
        for (const std::string& part : parts)
            EXPECT_NE(outcome.output.find(part + shown), std::string::npos) << part << "\n" << outcome.output;
    };
    expect_on_its_line({"train", "gpt2-tiny", "--data", data, "--output", (own / "run").string(), "--metrics",
                        (own / "m.jsonl").string(), "--trace", (own / "run.json").string(), "--sequence", "16",
                        "--global-batch", "2", "--steps", "1", "--threads", "1"},
                       {"data ", "output ", "metrics ", "trace ", "saved ", "\n  model   "});
    expect_on_its_line({"schedule", "1f1b", "--pipe", "2", "--micro-batches", "2", "--html", (own / "page").string(),
                        "--trace", (own / "trace").string()},
                       {"page: ", "trace: "});
}

TEST(Inspect, NamesOfTensorsMetadataAndFilesAreNotObeyed) {
    const TemporaryFolder folder;
    const std::vector<StoredTensor> tensors = {{hostile, DType::float32, {1}}};
    const SafetensorsLayout layout = lay_out_safetensors(tensors, {{hostile, hostile}});
    const std::string bytes = layout.head + std::string(4, '\0');
    expect_plain({"inspect", folder.write("a.safetensors", bytes).string()}, "\\x1b[2J");
    expect_plain({"inspect", folder.write(hostile + ".safetensors", bytes).string()}, "\\x1b[2J");
    fs::create_directory(folder / hostile);
    expect_plain({"inspect", (folder / hostile).string()}, "\\u001b[2J");         // in an error sentence
    expect_plain({"inspect", (folder / (hostile + "x")).string()}, "\\u001b[2J"); // where there is nothing
}

TEST(Inspect, ForeignTypesAndPlansAreNotObeyed) {
    const TemporaryFolder folder;
    const std::string header =
        nlohmann::json{{"t", {{"dtype", hostile}, {"shape", {0}}, {"data_offsets", {0, 0}}}}}.dump();
    const std::uint64_t length = header.size();
    const std::string start(reinterpret_cast<const char*>(&length), sizeof length);
    expect_plain({"inspect", folder.write("f.safetensors", start + header).string()}, "\\x1b[2J");
    nlohmann::json plan = read_json(test_data() / "plans/version-6.json");
    plan["model"] = hostile;
    plan["device"] = hostile;
    expect_plain({"inspect", folder.write("plan.json", plan.dump()).string()}, "\\x1b[2J");
    plan["schedule"]["family"] = hostile;
    expect_plain({"inspect", folder.write("wrong.json", plan.dump()).string()}, "\\x1b[2J");
}

} // namespace
} // namespace tutti

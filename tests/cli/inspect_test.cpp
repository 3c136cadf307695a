// Names in files and of files are shown, never obeyed by a terminal.
#include "cli/program.h"
#include "terminal/shown.h"

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
}

TEST(Inspect, NamesOfTensorsMetadataAndFilesAreNotObeyed) {
    const TemporaryFolder folder;
    const std::vector<TensorSpec> tensors = {{hostile, DType::float32, {1}}};
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

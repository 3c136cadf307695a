// tutti tokenize on the reference tokenizers, as a user calls it.
#include "data/token_source.h"
#include "program.h"

#include <algorithm>

namespace tutti::test {
namespace {

fs::path tokenizer(const std::string& name) { return test_data() / "tokenizers" / name; }

// The field of every line of the cases, as JSON lines.
std::string column(const std::string& name, const std::string& field) {
    std::string lines;
    for (const nlohmann::json& one : json_lines(read_text(tokenizer(name) / "cases.jsonl")))
        lines += one[field].dump() + '\n';
    return lines;
}

std::vector<nlohmann::json> printed(const Words& words) {
    const Outcome outcome = tutti_with(words);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return json_lines(outcome.output);
}

TEST(Tokenize, JsonLinesBecomeListsOfIdsAndTextsAgain) {
    for (const char* name : {"llama3", "t5"}) {
        const std::string folder = tokenizer(name).string(), cases = (tokenizer(name) / "cases.jsonl").string();
        EXPECT_EQ(printed({"tokenize", folder, "--jsonl", cases, "--field", "text", "--threads", "3"}),
                  json_lines(column(name, "ids")));
        EXPECT_EQ(printed({"tokenize", folder, "--jsonl", cases, "--no-special-tokens"}),
                  json_lines(column(name, "plain")));
        EXPECT_EQ(printed({"tokenize", folder, "--jsonl", cases, "--field", "ids", "--decode"}),
                  json_lines(column(name, "decoded")));
        EXPECT_EQ(
            printed({"tokenize", folder, "--jsonl", cases, "--field", "ids", "--decode", "--skip-special-tokens"}),
            json_lines(column(name, "decoded_plain")));
    }
}

TEST(Tokenize, AFileIsOneTextAndLinesAreManyWhereThatIsAsked) {
    const TemporaryFolder folder;
    const std::string path = folder.write("a.txt", "ab\ncd\r\n\nef").string(), gpt2 = tokenizer("gpt2").string();
    const auto whole = printed({"tokenize", gpt2, path});
    ASSERT_EQ(whole.size(), 1u);
    const fs::path ids = folder.write("ids.txt", whole[0].dump());
    EXPECT_EQ(printed({"tokenize", gpt2, ids.string(), "--decode"}), (std::vector<nlohmann::json>{"ab\ncd\r\n\nef"}));
    const auto lines = printed({"tokenize", gpt2, path, "--lines"});
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[2], nlohmann::json::array());
    EXPECT_EQ(printed({"tokenize", gpt2, path, path}).size(), 2u);
}

TEST(Tokenize, TokensAreWrittenForTraining) {
    const TemporaryFolder folder;
    std::string lines;
    for (int i = 0; i < 20000; ++i) lines += fmt::format("{{\"t\": \"text {} of many\"}}\n", i);
    const std::string corpus = folder.write("corpus.jsonl", lines).string(), gpt2 = tokenizer("gpt2").string();
    std::vector<std::int64_t> expected;
    for (const nlohmann::json& ids :
         printed({"tokenize", gpt2, "--jsonl", corpus, "--field", "t", "--append", "<|endoftext|>"}))
        for (const nlohmann::json& id : ids) expected.push_back(id);
    for (const std::string format : {"llm.c", "megatron"}) {
        const std::string output = (folder / (format + ".bin")).string();
        const Outcome outcome = tutti_with({"tokenize", gpt2, "--jsonl", corpus, "--field", "t", "--append",
                                            "<|endoftext|>", "--output", output, "--format", format});
        ASSERT_EQ(outcome.status, 0) << outcome.errors;
        EXPECT_NE(outcome.output.find("tokens of 20000 texts as uint16"), std::string::npos) << outcome.output;
        const auto sequence = static_cast<std::int64_t>(expected.size()) - 1;
        std::vector<std::int64_t> input(expected.size() - 1), targets(input);
        data::open_tokens(output, sequence)->read(0, input, targets);
        input.push_back(targets.back());
        EXPECT_EQ(input, expected);
    }
}

TEST(Tokenize, MistakesAreAnsweredInOneSentence) {
    const TemporaryFolder folder;
    const std::string gpt2 = tokenizer("gpt2").string();
    const std::string lines = folder.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n").string();
    const std::string broken = folder.write("b.txt", "ok\n\xff\n").string();
    expect_refusal({"tokenize"}, "which tokenizer?");
    expect_refusal({"tokenize", "nowhere", lines}, "there is no tokenizer nowhere");
    expect_refusal({"tokenize", gpt2, "--jsonl", lines, "--field", "words"}, "a.jsonl, line 1: the line");
    expect_refusal({"tokenize", gpt2, broken}, "b.txt: the text is not UTF-8: byte 3");
    expect_refusal({"tokenize", gpt2, broken, "--decode"}, "b.txt, line 1: the line is not JSON");
    expect_refusal({"tokenize", gpt2, broken, "--field", "a"}, "--field names a field of JSON lines");
    expect_refusal({"tokenize", gpt2, broken, "--jsonl", lines}, "not both");
    expect_refusal({"tokenize", gpt2, broken, "--append", "<nothing>"}, "which is no token");
    expect_refusal({"tokenize", gpt2, broken, "--output", (folder / "t.bin").string(), "--format", "csv"},
                   "should be llm.c or megatron");
    const Outcome second = tutti_with({"tokenize", gpt2, "--jsonl", lines});
    EXPECT_EQ(second.status, 2);
    EXPECT_NE(second.errors.find("a.jsonl, line 2: the line"), std::string::npos) << second.errors;
}

} // namespace
} // namespace tutti::test

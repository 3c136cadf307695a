// Whole tokenizers from small files: added tokens, templates, what is refused and with which sentence.
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "text/tokenizer.h"

#include <nlohmann/json.hpp>

namespace tutti::test {
namespace {

using namespace tutti::text;
using nlohmann::json;
using Ids = std::vector<Id>;

// Words of letters and signs, as a WordLevel model; ids are places.
json words_file(const std::vector<std::string>& words) {
    json vocab = json::object();
    for (std::size_t i = 0; i < words.size(); ++i) vocab[words[i]] = i;
    return {{"version", "1.0"},
            {"added_tokens", json::array()},
            {"normalizer", nullptr},
            {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
            {"post_processor", nullptr},
            {"decoder", nullptr},
            {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", words[0]}}}};
}
json added(const std::string& content, const json& flags = json::object()) {
    json token = {{"id", 99},        {"content", content},  {"single_word", false}, {"lstrip", false},
                  {"rstrip", false}, {"normalized", false}, {"special", true}};
    token.update(flags);
    return token;
}
std::unique_ptr<const Tokenizer> read(const json& file) { return read_tokenizer_json(file.dump(), "here"); }
Ids ids_of(const json& file, std::string_view text, bool special = true) { return read(file)->encode(text, special); }

TEST(TokenizerJson, AddedTokensGetIdsBehindTheModelsUnlessItHasThem) {
    json file = words_file({"?", "a", "[x]"});
    file["added_tokens"] = {added("[x]"), added("[y]"), added(""), added("[z]")};
    EXPECT_EQ(ids_of(file, "a[x]a[y][z]"), (Ids{1, 2, 1, 3, 4}));
    EXPECT_EQ(read(file)->end_of_ids(), 5u);
    EXPECT_EQ(read(file)->id_of("[z]"), 4u);
}

TEST(TokenizerJson, TheLongestOfTheLeftmostAddedTokensIsTaken) {
    json file = words_file({"?"});
    file["added_tokens"] = {added("ab"), added("abc"), added("bcd")};
    EXPECT_EQ(ids_of(file, "abcd"), (Ids{2, 0}));
    EXPECT_EQ(ids_of(file, "abbcd"), (Ids{1, 3}));
}

TEST(TokenizerJson, AddedTokensMayBeWholeWordsAndTakeWhiteSpace) {
    json file = words_file({"?", "a", "b"});
    file["added_tokens"] = json::array({added("<m>", {{"single_word", true}})});
    EXPECT_EQ(ids_of(file, "<m> a<m> <m>"), (Ids{3, 0, 3})); // "a<m>" is a word of its own
    EXPECT_EQ(ids_of(file, "\u00e9<m>"), (Ids{0}));
    // Without a pre-tokenizer that drops spaces, who takes them shows.
    file["pre_tokenizer"] = nullptr;
    file["added_tokens"] = {added("<l>", {{"lstrip", true}}), added("<r>", {{"rstrip", true}})};
    EXPECT_EQ(ids_of(file, "a \u3000<l>b"), (Ids{1, 3, 2}));
    EXPECT_EQ(ids_of(file, "a<r> \n b"), (Ids{1, 4, 2}));
    EXPECT_EQ(ids_of(file, "a <r>"), (Ids{0, 4})); // "a " is no word
}

TEST(TokenizerJson, NormalizedTokensAreFoundInNormalizedText) {
    json file = words_file({"?", "a", "yesterday"});
    file["normalizer"] = {{"type", "Lowercase"}};
    file["added_tokens"] = {added("Day", {{"normalized", true}, {"special", false}}), added("[DAY]")};
    const auto tokenizer = read(file);
    EXPECT_EQ(tokenizer->encode("A DAY [DAY] [day]", true), (Ids{1, 3, 4, 0, 3, 0}));
    EXPECT_EQ(tokenizer->decode(Ids{3, 4}, false), "day [DAY]"); // it is decoded as it was found
}

TEST(TokenizerJson, SpecialTokensAreLeftOutOfTextsOnlyWhereThatIsAsked) {
    json file = words_file({"?", "a"});
    file["added_tokens"] = {added("<s>"), added("<t>", {{"special", false}})};
    const auto tokenizer = read(file);
    EXPECT_EQ(tokenizer->decode(Ids{2, 1, 3, 77}, false), "<s> a <t>"); // there is no token 77
    EXPECT_EQ(tokenizer->decode(Ids{2, 1, 3}, true), "a <t>");
}

json template_of(const json& single) {
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {7, 8}}, {"tokens", {"<s>", "<s>"}}}}}}};
}
const json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
const json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};

TEST(TokenizerJson, PostProcessorsPutSpecialTokensAround) {
    json file = words_file({"?", "a"});
    file["post_processor"] = template_of({special, sequence, sequence});
    EXPECT_EQ(ids_of(file, "a"), (Ids{7, 8, 1, 1}));
    EXPECT_EQ(ids_of(file, "a", false), (Ids{1, 1}));
    EXPECT_EQ(read(file)->end_of_ids(), 9u);
    file["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"[CLS]", 5}}, {"sep", {"[SEP]", 6}}};
    EXPECT_EQ(ids_of(file, "a"), (Ids{5, 1, 6}));
    EXPECT_EQ(ids_of(file, "", true), (Ids{5, 6}));
    EXPECT_EQ(ids_of(file, "a", false), (Ids{1}));
    file["post_processor"]["type"] = "RobertaProcessing";
    EXPECT_EQ(ids_of(file, "a"), (Ids{5, 1, 6}));
    // A template makes two parts of one; RoBERTa's processor sets them apart.
    const json roberta = file["post_processor"];
    file["post_processor"] = {{"type", "Sequence"}, {"processors", {template_of({special, sequence}), roberta}}};
    EXPECT_EQ(ids_of(file, "a"), (Ids{5, 7, 8, 6, 6, 1, 6}));
}

TEST(TokenizerJson, ByteLevelPipelinesTakeEveryText) {
    json vocab = json::object();
    for (int byte = 0; byte < 256; ++byte) {
        const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        static int next;
        next = byte == 0 ? 0x100 : next;
        const int character = printable ? byte : next++;
        std::string text;
        if (character < 0x80) {
            text += static_cast<char>(character);
        } else {
            text += static_cast<char>(0xC0 | character >> 6);
            text += static_cast<char>(0x80 | (character & 0x3F));
        }
        vocab[text] = byte;
    }
    json file = words_file({"?"});
    file["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}};
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
    file["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
    const auto tokenizer = read(file);
    const std::string text("a \u00e9\0\u4e2d\U0001f600\n", 13);
    const Ids bytes(text.begin(), text.end());
    Ids expected;
    for (char c : text) expected.push_back(static_cast<unsigned char>(c));
    EXPECT_EQ(tokenizer->encode(text, true), expected);
    EXPECT_EQ(tokenizer->decode(expected, true), text);
    EXPECT_ERROR(tokenizer->encode("a\xff", true), "the text is not UTF-8: byte 1 does not belong to a character");
}

// What the model has to do with the place of a byte-level pre-tokenizer: only the last one may leave bytes.
TEST(TokenizerJson, AByteLevelPreTokenizerInTheMiddleSpellsBytes) {
    json file = words_file({"?"});
    file["model"] = {{"type", "BPE"}, {"vocab", {{"\u0120", 0}, {"a", 1}}}, {"merges", json::array()}};
    const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const json split = {
        {"type", "Split"}, {"pattern", {{"String", "\u0120"}}}, {"behavior", "Removed"}, {"invert", false}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {byte_level, split}}};
    EXPECT_EQ(ids_of(file, "a a"), (Ids{1, 1}));
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
    EXPECT_EQ(ids_of(file, "a a"), (Ids{1, 0, 1}));
}

TEST(TokenizerJson, MetaspaceOfTheFirstWordAloneKnowsTheBeginning) {
    json file = words_file({"?", "\u2581a", "a", "\u2581b"});
    file["added_tokens"] = json::array({added("<s>")});
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
    EXPECT_EQ(ids_of(file, "a b<s>a"), (Ids{1, 3, 4, 2}));
    EXPECT_EQ(ids_of(file, "<s>a"), (Ids{4, 2}));
    file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
    EXPECT_EQ(ids_of(file, " a"), (Ids{2})); // it comes from the second character
}

TEST(TokenizerJson, OldFilesDoNotSayWhatTheirModelIs) {
    json file = words_file({"?", "a"});
    file["model"] = {{"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}},
                     {"merges", json::array({"#version: 0.2", "a b"})},
                     {"dropout", nullptr}};
    EXPECT_EQ(ids_of(file, "ab"), (Ids{2}));
    file["model"]["merges"] = json::array({json::array({"a", "b"})});
    EXPECT_EQ(ids_of(file, "ab"), (Ids{2}));
    file["model"] = {{"vocab", json::array({json::array({"<u>", 0.0}), json::array({"a", -1.5})})}, {"unk_id", 0}};
    EXPECT_EQ(ids_of(file, "ab"), (Ids{1, 0}));
}

TEST(TokenizerJson, RefusalsNameTheFileAndTheKey) {
    const json good = words_file({"?", "a"});
    const auto refused = [&](const std::string& pointer, const json& value) {
        json file = good;
        file[json::json_pointer(pointer)] = value;
        return error_of([&] { read(file); });
    };
    const auto expect = [&](const std::string& pointer, const json& value, const std::string& sentence) {
        EXPECT_NE(refused(pointer, value).find(sentence), std::string::npos) << refused(pointer, value);
    };
    expect("/version", "2.0", "here is of version \"2.0\"");
    expect("/model/type", "Neural", "here: model: there is no model of the type \"Neural\"");
    expect("/model/vocab/a", -1, "has an id that is no integer from 0 to");
    expect("/model/vocab/a", 123456789, "which is too large for its 2 tokens");
    expect("/model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", json::array()}, {"dropout", 0.1}},
           "dropout is 0.1");
    expect("/model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"a b c"}}}, "merges[0] should be two tokens");
    expect("/normalizer", {{"type", "Magic"}}, "there is no normalizer of the type \"Magic\"");
    expect("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "??"}}, "is not base64");
    expect("/pre_tokenizer",
           {{"type", "Split"}, {"pattern", {{"Regex", "(?~a)"}}}, {"behavior", "Isolated"}, {"invert", false}},
           "here: pre_tokenizer: pattern: the pattern \"(?~a)\" has (?~");
    expect("/pre_tokenizer", {{"type", "Punctuation"}, {"behavior", "Gone"}}, "behavior is \"Gone\"");
    expect("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}, "length is 0");
    expect("/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}, "should be one character");
    expect("/post_processor", template_of({{{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}}}),
           "the special token \"x\" is not among special_tokens");
    expect("/post_processor", template_of({{{"Sequence", {{"id", "B"}, {"type_id", 0}}}}}),
           "asks for a second one ($B)");
    expect("/decoder", {{"type", "Magic"}}, "there is no decoder of the type \"Magic\"");
    expect("/added_tokens", {{{"content", 3}}}, "added_tokens[0]");
}

TEST(TokenizerJson, DamagedFilesAreReadOrRefused) {
    json file = words_file({"?", "a", "b"});
    file["added_tokens"] = json::array({added("<s>", {{"lstrip", true}})});
    file["normalizer"] = {{"type", "Sequence"},
                          {"normalizers", {{{"type", "NFC"}}, {{"type", "Prepend"}, {"prepend", "_"}}}}};
    file["post_processor"] = template_of({special, sequence});
    file["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    const std::string whole = file.dump();
    Mutator damaged(9);
    for (int i = 0; i < 2000; ++i) try {
            const auto tokenizer = read_tokenizer_json(damaged(whole), "here");
            tokenizer->decode(tokenizer->encode("a <s>b \u00e9", true), true);
        } catch (const Error&) {
        }
}

TEST(Tokenizer, FoldersAndFilesAreOpenedOrNamed) {
    const TemporaryFolder folder;
    EXPECT_ERROR(open_tokenizer(folder.path()), "has neither a tokenizer.json nor a tokenizer.model");
    EXPECT_ERROR(open_tokenizer(folder / "no.json"), "there is no tokenizer");
    EXPECT_ERROR(open_tokenizer(folder.write("tokenizer.model", "no model")), "is no model of SentencePiece");
    const fs::path path = folder.write("tokenizer.json", words_file({"?", "a"}).dump());
    EXPECT_EQ(open_tokenizer(folder.path())->encode("a", true), (Ids{1}));
    EXPECT_EQ(open_tokenizer(path)->encode("a b", true), (Ids{1, 0}));
}

} // namespace
} // namespace tutti::test

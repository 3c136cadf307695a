#include "text/bpe.h"
#include "text/unigram.h"
#include "text/word_level.h"
#include "text/word_piece.h"

#include "support/temporary_folder.h"

#include <algorithm>

namespace tutti::test {
namespace {

using namespace tutti::text;
using Ids = std::vector<Id>;

Vocabulary vocabulary_of(const std::vector<std::string>& tokens) {
    Vocabulary vocabulary;
    for (Id id = 0; id < tokens.size(); ++id) vocabulary.add(tokens[id], id);
    return vocabulary;
}
Ids encode(const Model& model, std::string_view word) {
    Ids ids;
    model.encode(word, ids);
    return ids;
}

TEST(Vocabulary, FindsTokensAndIds) {
    Vocabulary vocabulary;
    for (Id id = 0; id < 1000; ++id) vocabulary.add("token" + std::to_string(id), 2 * id);
    EXPECT_EQ(vocabulary.size(), 1000u);
    EXPECT_EQ(vocabulary.find("token500"), 1000u);
    EXPECT_EQ(vocabulary.token(1000), "token500");
    EXPECT_EQ(vocabulary.token(1001), std::nullopt);
    EXPECT_EQ(vocabulary.find("token"), std::nullopt);
    EXPECT_ERROR(Vocabulary::check_ids(3, 1u << 22, "here"), "here has the id 4194304, which is too large for its 3");
}

TEST(Bpe, MergesTheEarliestPairFirstAndTheLeftmostOfEqualOnes) {
    const Bpe bpe(vocabulary_of({"a", "b", "c", "ab", "bc", "abc", "aa"}),
                  {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}}, {}, "here");
    EXPECT_EQ(encode(bpe, "abc"), (Ids{5}));
    EXPECT_EQ(encode(bpe, "aba"), (Ids{3, 0}));
    EXPECT_EQ(encode(bpe, "aaa"), (Ids{6, 0}));
    EXPECT_EQ(encode(bpe, "axc"), (Ids{0, 2})); // no token for it, and none for what is unknown
}

TEST(Bpe, UnknownCharactersAreFusedWhereThatIsAsked) {
    BpeOptions options{.unknown = "?"};
    const Vocabulary vocabulary = vocabulary_of({"?", "a"});
    EXPECT_EQ(encode(Bpe(vocabulary, {}, options, "here"), "xya\u4e2d"), (Ids{0, 0, 1, 0}));
    options.fuse_unknown = true;
    EXPECT_EQ(encode(Bpe(vocabulary, {}, options, "here"), "xya\u4e2d"), (Ids{0, 1, 0}));
    options.unknown = "!";
    EXPECT_ERROR(encode(Bpe(vocabulary, {}, options, "here"), "x"), "here: the unk_token \"!\" is needed");
}

// An unknown character is written when a known one follows, so behind the bytes of one that stands between.
TEST(Bpe, BytesStandInForCharactersWhereAllOfThemAreTokens) {
    const BpeOptions options{.unknown = "?", .byte_fallback = true};
    const Bpe bpe(vocabulary_of({"?", "a", "<0xC3>", "<0xA9>"}), {}, options, "here");
    EXPECT_EQ(encode(bpe, "a\u00e9a"), (Ids{1, 2, 3, 1}));
    EXPECT_EQ(encode(bpe, "a\u00e8"), (Ids{1, 0}));
    EXPECT_EQ(encode(bpe, "\u00e8\u00e9a"), (Ids{2, 3, 0, 1}));
}

TEST(Bpe, PrefixesAndSuffixesBelongToTheSymbols) {
    const BpeOptions options{.continuing_prefix = "##", .end_suffix = "</w>"};
    const Bpe bpe(vocabulary_of({"a", "##b", "##c</w>", "ab", "abc</w>", "a</w>"}), {{"a", "##b"}, {"ab", "##c</w>"}},
                  options, "here");
    EXPECT_EQ(encode(bpe, "abc"), (Ids{4}));
    EXPECT_EQ(encode(bpe, "a"), (Ids{5}));
}

TEST(Bpe, WordsThatAreTokensNeedNoMergesWhereTheseAreIgnored) {
    BpeOptions options;
    const Vocabulary vocabulary = vocabulary_of({"a", "b", "ab"});
    EXPECT_EQ(encode(Bpe(vocabulary, {}, options, "here"), "ab"), (Ids{0, 1}));
    options.ignore_merges = true;
    EXPECT_EQ(encode(Bpe(vocabulary, {}, options, "here"), "ab"), (Ids{2}));
}

TEST(Bpe, TakesBytesForTheirCharacters) {
    const Vocabulary vocabulary = vocabulary_of({"\u0120", "a", "\u00c3", "\u00a9", "\u0120a", "\u00c3\u00a9"});
    Bpe bpe(vocabulary, {{"\u0120", "a"}, {"\u00c3", "\u00a9"}}, {}, "here");
    const Ids spelled = encode(bpe, "\u0120a\u00c3\u00a9");
    bpe.take_bytes();
    EXPECT_EQ(encode(bpe, " a\u00e9"), spelled);
    EXPECT_EQ(spelled, (Ids{4, 5}));
}

TEST(Bpe, MergesOfWhatIsNoTokenAreRefused) {
    EXPECT_ERROR(Bpe(vocabulary_of({"a"}), {{"a", "b"}}, {}, "here"), "here: merge 0 needs the token \"b\"");
    EXPECT_ERROR(Bpe(vocabulary_of({"a", "b"}), {{"a", "b"}}, {}, "here"), "here: merge 0 needs the token \"ab\"");
    const BpeOptions prefix{.continuing_prefix = "##"};
    EXPECT_ERROR(Bpe(vocabulary_of({"a", "b"}), {{"a", "b"}}, prefix, "here"), "shorter than");
}

// Long words are merged by a heap, short ones by looking at all pairs: both as the definition says.
TEST(Bpe, MergesWordsOfAnyLengthAsDefined) {
    const std::vector<std::string> tokens = {"a", "b", "aa", "ab", "ba", "aab", "abab", "baba", "aabaab"};
    const Bpe::Merges merges = {{"b", "a"},  {"a", "b"},   {"a", "a"},    {"ba", "ba"},
                                {"aa", "b"}, {"ab", "ab"}, {"aab", "aab"}};
    const Bpe bpe(vocabulary_of(tokens), merges, {}, "here");
    for (std::uint32_t seed = 0; seed < 500; ++seed) {
        std::vector<std::string> symbols;
        std::string word;
        for (std::uint32_t i = 0; i <= seed % 97; ++i)
            symbols.push_back(philox_draw({1, 2}, seed, i) % 3 == 0 ? "b" : "a");
        for (const std::string& symbol : symbols) word += symbol;
        for (bool merged = true; merged;) {
            merged = false;
            for (const auto& [left, right] : merges) {
                for (std::size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
                    if (symbols[i] != left || symbols[i + 1] != right) continue;
                    symbols[i] += right;
                    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                    merged = true;
                }
                if (merged) break;
            }
        }
        Ids expected;
        for (const std::string& symbol : symbols)
            expected.push_back(static_cast<Id>(std::ranges::find(tokens, symbol) - tokens.begin()));
        EXPECT_EQ(encode(bpe, word), expected) << word;
    }
}

// Between characters that no merge joins.
TEST(Bpe, CutsWordsWhereNoMergeGoesOver) {
    const Vocabulary vocabulary = vocabulary_of({"a", "b", "\u2581", "\u2581a", "\u2581\u2581", "ab", "a\u2581"});
    const Bpe bpe(vocabulary, {{"\u2581", "a"}, {"\u2581", "\u2581"}, {"a", "b"}}, {}, "here");
    const std::string text = "ab\u2581a\u2581\u2581bx\u2581";
    EXPECT_EQ(bpe.next_cut(text, 0), 2u);           // ab
    EXPECT_EQ(bpe.next_cut(text, 2), 6u);           // \u2581a
    EXPECT_EQ(bpe.next_cut(text, 6), 12u);          // marks stay together
    EXPECT_EQ(bpe.next_cut(text, 12), text.size()); // what is no token may be anything
    const Bpe whole(vocabulary, {}, {.ignore_merges = true}, "here");
    EXPECT_EQ(whole.next_cut(text, 0), text.size());
}

// In parts and as a whole, a word has the same tokens.
TEST(Bpe, PartsHaveTheTokensOfTheWhole) {
    const std::vector<std::string> tokens = {"?",       "a",       "b",   "c",      "\u2581",  "ab",
                                             "\u2581a", "c\u2581", "abc", "<0x64>", "\u2581ab"};
    const Bpe::Merges merges = {{"a", "b"}, {"\u2581", "a"}, {"ab", "c"}, {"c", "\u2581"}, {"\u2581", "ab"}};
    const BpeOptions options{.unknown = "?", .fuse_unknown = true, .byte_fallback = true};
    const Bpe bpe(vocabulary_of(tokens), merges, options, "here");
    const std::vector<std::string> pieces = {"a", "b", "c", "\u2581", "d", "\u00e9"};
    std::size_t parts = 0;
    for (std::uint32_t seed = 0; seed < 2000; ++seed) {
        std::string word;
        for (std::uint32_t i = 0; i < 1 + seed % 60; ++i) word += pieces[philox_draw({5, 6}, seed, i) % pieces.size()];
        Ids ids;
        for (std::size_t begin = 0, end = 0; begin < word.size(); begin = end, ++parts) {
            end = bpe.next_cut(word, begin);
            bpe.encode(std::string_view(word).substr(begin, end - begin), ids);
        }
        ASSERT_EQ(ids, encode(bpe, word)) << word;
    }
    EXPECT_GT(parts, 4000u);
}

TEST(WordPiece, TakesTheLongestPieceThenTheLongestContinuation) {
    const WordPiece model(vocabulary_of({"[UNK]", "un", "##aff", "##able", "unaff", "##a", "##\u00e9"}),
                          {.longest_word = 10}, "here");
    EXPECT_EQ(encode(model, "unaffable"), (Ids{4, 3}));
    EXPECT_EQ(encode(model, "una\u00e9"), (Ids{1, 5, 6}));
    EXPECT_EQ(encode(model, "unx"), (Ids{0}));
    EXPECT_EQ(encode(model, "##a"), (Ids{5}));         // the text itself may begin as a continuation
    EXPECT_EQ(encode(model, "unaaaaaaaaa"), (Ids{0})); // eleven characters
    EXPECT_ERROR(encode(WordPiece(vocabulary_of({"a"}), {}, "here"), "b"), "here: the unk_token \"[UNK]\" is needed");
}

TEST(WordLevel, TakesWholeWords) {
    const WordLevel model(vocabulary_of({"<unk>", "word"}), "<unk>", "here");
    EXPECT_EQ(encode(model, "word"), (Ids{1}));
    EXPECT_EQ(encode(model, "words"), (Ids{0}));
    EXPECT_ERROR(encode(WordLevel(vocabulary_of({"a"}), "?", "here"), "b"), "here: the word \"b\" is no token");
}

// The example of the library's documentation, and ties: the cut that was found first stays.
TEST(Unigram, TakesTheCutWithTheHighestScore) {
    const Unigram model(
        {{"<unk>", 0}, {"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}, {"cd", 1}, {"ab", 2}, {"abc", 5}, {"abcd", 10}}, 0,
        false, "here");
    EXPECT_EQ(encode(model, "abcdacdxx"), (Ids{8, 1, 5, 0}));
    const Unigram ties({{"<unk>", 0}, {"a", -1}, {"aa", -2}}, 0, false, "here");
    EXPECT_EQ(encode(ties, "aa"), (Ids{2}));
}

TEST(Unigram, BytesStandInForWhatIsUnknown) {
    const Unigram::Pieces pieces = {{"<unk>", 0}, {"a", -1}, {"<0xC3>", -2}, {"<0xA9>", -2}};
    EXPECT_EQ(encode(Unigram(pieces, 0, true, "here"), "a\u00e9"), (Ids{1, 2, 3}));
    EXPECT_EQ(encode(Unigram(pieces, 0, true, "here"), "a\u00e8\u00e9"), (Ids{1, 0})); // together they are unknown
    EXPECT_EQ(encode(Unigram(pieces, 0, false, "here"), "\u00e9"), (Ids{0}));
    EXPECT_ERROR(encode(Unigram(pieces, std::nullopt, true, "here"), "\u00e9"),
                 "here: a text has an unknown character");
    EXPECT_ERROR(Unigram(pieces, 4, true, "here"), "here: unk_id is 4, but there are 4 tokens");
}

} // namespace
} // namespace tutti::test

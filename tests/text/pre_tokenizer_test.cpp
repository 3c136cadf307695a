#include "text/pre_tokenizer.h"

#include "support/temporary_folder.h"

namespace tutti::test {
namespace {

using namespace tutti::text;
using Texts = std::vector<std::string>;

Texts pieces(const PreTokenizerPointer& pre_tokenizer, const std::string& text, std::size_t at_start = 1) {
    struct Taken final : PieceSink {
        void take(const Piece& piece) override { texts.emplace_back(piece.text); }
        Texts texts;
    } taken;
    OwnedTexts owned(text.size());
    pre_tokenizer->cut({text, at_start}, owned, taken);
    return taken.texts;
}

Texts split_at_dashes(SplitBehavior behavior, bool invert, const std::string& text) {
    return pieces(split_pre_tokenizer(Pattern::of_text("-", "here"), false, behavior, invert), text);
}

// The example of the library's documentation: "the-final--countdown".
TEST(PreTokenizer, SplitHasFiveBehaviors) {
    const std::string text = "the-final--countdown";
    EXPECT_EQ(split_at_dashes(SplitBehavior::removed, false, text), (Texts{"the", "final", "countdown"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::isolated, false, text),
              (Texts{"the", "-", "final", "-", "-", "countdown"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::merged_with_previous, false, text),
              (Texts{"the-", "final-", "-", "countdown"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::merged_with_next, false, text),
              (Texts{"the", "-final", "-", "-countdown"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::contiguous, false, text), (Texts{"the", "-", "final", "--", "countdown"}));
}

TEST(PreTokenizer, InvertedSplitsAreAtWhatDoesNotMatch) {
    const std::string text = "a-b--";
    EXPECT_EQ(split_at_dashes(SplitBehavior::removed, true, text), (Texts{"-", "-", "-"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::isolated, true, text), (Texts{"a", "-", "b", "-", "-"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::merged_with_previous, true, text), (Texts{"a", "-b", "-", "-"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::merged_with_next, true, text), (Texts{"a-", "b-", "-"}));
    EXPECT_EQ(split_at_dashes(SplitBehavior::contiguous, true, text), (Texts{"a", "-", "b", "--"}));
}

TEST(PreTokenizer, MetaspacePrependsByItsScheme) {
    const auto words = [](PrependScheme scheme, bool split, const std::string& text, std::size_t at_start) {
        return pieces(metaspace_pre_tokenizer('_', scheme, split), text, at_start);
    };
    EXPECT_EQ(words(PrependScheme::always, true, "a  b", 0), (Texts{"_a", "_", "_b"}));
    EXPECT_EQ(words(PrependScheme::always, true, " a", 0), (Texts{"_a"}));
    EXPECT_EQ(words(PrependScheme::first, true, "a b", 1), (Texts{"_a", "_b"}));
    EXPECT_EQ(words(PrependScheme::first, true, "a b", 0), (Texts{"a", "_b"}));
    EXPECT_EQ(words(PrependScheme::never, false, "a b", 1), (Texts{"a_b"}));
}

TEST(PreTokenizer, ByteLevelScansAsGpt2AndSpellsBytes) {
    EXPECT_EQ(pieces(byte_level_pre_tokenizer(true, true, true), "I'm \u00e9"),
              (Texts{"\u0120I", "'m", "\u0120\u00c3\u00a9"}));
    EXPECT_EQ(pieces(byte_level_pre_tokenizer(true, true, false), " a  b"), (Texts{" a", " ", " b"}));
    EXPECT_EQ(pieces(byte_level_pre_tokenizer(false, false, true), "a b"), (Texts{"a\u0120b"}));
}

TEST(PreTokenizer, WhitespaceTellsWordsFromSigns) {
    EXPECT_EQ(pieces(whitespace_pre_tokenizer(), " Hey,\u200d you_2!! "), (Texts{"Hey", ",", "\u200d", "you_2", "!!"}));
    EXPECT_EQ(pieces(whitespace_split_pre_tokenizer(), " a,\u3000b\n"), (Texts{"a,", "b"}));
}

TEST(PreTokenizer, PunctuationIsThatOfAsciiAndOfUnicode) {
    EXPECT_EQ(pieces(punctuation_pre_tokenizer(SplitBehavior::isolated), "a$b\u3002\u00ab"),
              (Texts{"a", "$", "b", "\u3002", "\u00ab"}));
    EXPECT_EQ(pieces(punctuation_pre_tokenizer(SplitBehavior::merged_with_previous), "a.b"), (Texts{"a.", "b"}));
}

TEST(PreTokenizer, DigitsGoTogetherOrAlone) {
    EXPECT_EQ(pieces(digits_pre_tokenizer(false), "a12\u00bdb"), (Texts{"a", "12\u00bd", "b"}));
    EXPECT_EQ(pieces(digits_pre_tokenizer(true), "a12"), (Texts{"a", "1", "2"}));
}

TEST(PreTokenizer, DelimitersGo) { EXPECT_EQ(pieces(delimiter_pre_tokenizer('|'), "|a||b"), (Texts{"a", "b"})); }

// Kana and ideographs are one script here; a space joins what is before it, and is lost where nothing is.
TEST(PreTokenizer, ScriptsSplitAsSentencePieceSees) {
    EXPECT_EQ(pieces(unicode_scripts_pre_tokenizer(), "\u3069\u3053\u4e2d\u30fcabc \u0430\u0431."),
              (Texts{"\u3069\u3053\u4e2d\u30fc", "abc ", "\u0430\u0431", "."}));
    EXPECT_EQ(pieces(unicode_scripts_pre_tokenizer(), "  a"), (Texts{"a"}));
    EXPECT_EQ(pieces(unicode_scripts_pre_tokenizer(), " "), (Texts{}));
}

TEST(PreTokenizer, FixedLengthsAreInCharacters) {
    EXPECT_EQ(pieces(fixed_length_pre_tokenizer(2), "a\u00e9\u4e2dbc"), (Texts{"a\u00e9", "\u4e2db", "c"}));
}

} // namespace
} // namespace tutti::test

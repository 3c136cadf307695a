// Patterns as Oniguruma reads them, with Ruby's syntax.
#include "text/pattern.h"

#include "support/temporary_folder.h"
#include "text/pattern_translation.h"
#include "text/unicode.h"
#include "text/word_scanner.h"

#include <string>
#include <vector>

namespace tutti::test {
namespace {

using namespace tutti::text;
using Texts = std::vector<std::string>;

// What a pattern matches in a text.
Texts found(const std::string& pattern, std::string_view text) {
    Texts texts;
    for (const Match& match : Pattern::of_expression(pattern, "here").matches(text))
        if (match.matched) texts.emplace_back(text.substr(match.begin, match.end - match.begin));
    return texts;
}

TEST(Pattern, WhiteSpaceIsThatOfUnicodeWithoutTheMongolianVowelSeparator) {
    EXPECT_EQ(found("\\s+", "a\u3000\u2009b\u180ec"), (Texts{"\u3000\u2009"}));
    EXPECT_EQ(found("[^\\s]+", "a b\u180ec"), (Texts{"a", "b\u180ec"}));
    EXPECT_EQ(found("[a\\S]+", "a b\u180ec"), (Texts{"a", "b\u180ec"}));
}

TEST(Pattern, WordCharactersTakeMarksAndConnectingPunctuation) {
    EXPECT_EQ(found("\\w+", "he\u0301_\u203f1 x-y"), (Texts{"he\u0301_\u203f1", "x", "y"}));
    EXPECT_EQ(found("\\be\u0301\\b", "e\u0301 "), (Texts{"e\u0301"}));
    EXPECT_EQ(found("\\Bb\\B", "abc b"), (Texts{"b"}));
}

TEST(Pattern, HexadecimalDigitsAreWhatHStandsFor) {
    EXPECT_EQ(found("\\h+", "xff g1"), (Texts{"ff", "1"}));
    EXPECT_EQ(found("[\\H]+", "ffxy"), (Texts{"xy"}));
}

TEST(Pattern, APlusBehindAnIntervalRepeatsIt) {
    EXPECT_EQ(found("\\d{1,3}+", "1234567"), (Texts{"1234567"}));
    EXPECT_EQ(found("a{2}?b", "aab b"), (Texts{"aab", "b"})); // {n}? makes {n} optional
    EXPECT_EQ(found("a{,2}b", "aaab"), (Texts{"aab"}));
    EXPECT_EQ(found("a++b", "aab"), (Texts{"aab"}));
    EXPECT_EQ(found("x{a}", "x{a}"), (Texts{"x{a}"})); // no interval
}

TEST(Pattern, OptionsHoldForAllThatFollowsInTheGroup) {
    EXPECT_EQ(found("a(?i)b|c", "aB aC C"), (Texts{"aB", "aC"})); // a(?i:b|c)
    EXPECT_EQ(found("(?i:'s|'t)|x", "'S 'T X x"), (Texts{"'S", "'T", "x"}));
    EXPECT_EQ(found("(?m:.)", "\n"), (Texts{"\n"}));
    EXPECT_EQ(found("(?x) a b # not this )\n c", "abc"), (Texts{"abc"}));
}

TEST(Pattern, AnchorsAreOfLines) {
    EXPECT_EQ(found("^a$", "a\nb\na"), (Texts{"a", "a"}));
    EXPECT_EQ(found(".+", "ab\ncd"), (Texts{"ab", "cd"}));
}

TEST(Pattern, ClassesMayIntersectAndNest) {
    EXPECT_EQ(found("[a-z&&[^aeiou]]+", "hello"), (Texts{"h", "ll"}));
    EXPECT_EQ(found("[\\p{L}&&[^\\p{Han}]]+", "ab\u4e00c"), (Texts{"ab", "c"}));
    EXPECT_EQ(found("[ab[cd]]+", "abcde"), (Texts{"abcd"}));
    EXPECT_EQ(found("[^ab[^cd]]+", "abcdxy"), (Texts{"cd"}));
    EXPECT_EQ(found("[\\s-x]+", "a -x"), (Texts{" -x"})); // no range from a set
    EXPECT_EQ(found("[]a]+", "a]b"), (Texts{"a]"}));
    EXPECT_EQ(found("[[:alpha:]_]+", "a\u0301b_1"), (Texts{"a", "b_"})); // an accent alone is not Alphabetic
}

TEST(Pattern, PropertiesHaveLongAndShortNames) {
    EXPECT_EQ(found("\\p{Letter}+", "a1"), (Texts{"a"}));
    EXPECT_EQ(found("\\p{^L}+", "a1"), (Texts{"1"}));
    EXPECT_EQ(found("\\P{N}+", "a1"), (Texts{"a"}));
    EXPECT_EQ(found("\\p{Hiragana}+", "\u3042\u30fc\u30a2"), (Texts{"\u3042"})); // scripts, not their extensions
    EXPECT_EQ(found("\\p{Punct}+", "a$!b"), (Texts{"$!"}));
    EXPECT_ERROR(found("\\p{In_Arrows}", ""), "the property \"In_Arrows\"");
    EXPECT_ERROR(found("\\p{Nonsense}", ""), "cannot be used");
}

TEST(Pattern, WhatHasNoTranslationIsRefusedByName) {
    EXPECT_ERROR(found("(?~a)", ""), "(?~");
    EXPECT_ERROR(found("(*FAIL)", ""), "a callout");
    EXPECT_ERROR(found("\\y", ""), "text segments");
    EXPECT_ERROR(found("\\xE3\\x81", ""), "a byte of a character");
    EXPECT_ERROR(found("[a", ""), "a class that is not closed");
    EXPECT_ERROR(found("(a", ""), "a group that is not closed");
    EXPECT_ERROR(found("a)", ""), "a ) without its (");
    EXPECT_ERROR(found("*a", ""), "a quantifier with nothing before it");
    EXPECT_ERROR(found("(?<=a+)b", ""), "here: the pattern \"(?<=a+)b\" cannot be used");
}

TEST(Pattern, AnEmptyMatchBehindAMatchIsNone) {
    const std::vector<Match> expected = {{0, 1, true}, {1, 2, false}, {2, 2, true}};
    EXPECT_EQ(Pattern::of_expression("a*", "here").matches("ab"), expected);
    const std::vector<Match> everywhere = {{0, 0, true}, {0, 1, false}, {1, 1, true}};
    EXPECT_EQ(Pattern::of_text("", "here").matches("x"), everywhere);
}

TEST(Pattern, WorkOfAMatchIsLimited) {
    EXPECT_ERROR(found("(?:x+x+)+[yz]", std::string(5000, 'x')), "gives up on a text of 5000 bytes");
}

// The scanners against the patterns that they stand for, on texts that are drawn at random.
TEST(WordScanner, CutsAsItsPatternDoes) {
    const std::vector<std::string> patterns = {
        std::string(gpt2_pattern),
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
    const Texts pieces = {" ",      "  ",     "\n",         "\r\n",    "\t",           "a",       "Bc",
                          "12",     "3",      "'",          "'s",      "'LL",          "'\u017f", "!?",
                          ".",      "_",      "\u00e9",     "e\u0301", "\u4e2d\u6587", "\u3000",  "\u0663",
                          "\u00bd", "\u200b", "\U0001f600", "\u00a0",  "'re",          "\u2028"};
    for (const std::string& pattern : patterns) {
        const WordScanner scanner = scanner_for(pattern);
        ASSERT_NE(scanner, nullptr) << pattern;
        const Pattern compiled = Pattern::of_expression(pattern, "here");
        for (std::uint32_t seed = 0; seed < 4000; ++seed) {
            std::string text;
            for (std::uint32_t i = 0; i < 1 + seed % 12; ++i)
                text += pieces[philox_draw({3, 4}, seed, i) % pieces.size()];
            Texts expected, words;
            for (const Match& match : compiled.matches(text))
                expected.push_back(text.substr(match.begin, match.end - match.begin));
            for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
                end = scanner(text, begin);
                ASSERT_GT(end, begin);
                words.push_back(text.substr(begin, end - begin));
            }
            ASSERT_EQ(words, expected) << pattern << "\n" << text;
        }
    }
    EXPECT_EQ(scanner_for(std::string(gpt2_pattern) + " "), nullptr);
}

} // namespace
} // namespace tutti::test

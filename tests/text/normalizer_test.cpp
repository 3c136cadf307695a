#include "text/normalizer.h"

#include "support/temporary_folder.h"

namespace tutti::test {
namespace {

using namespace tutti::text;

std::string normal(const NormalizerPointer& normalizer, std::string text) {
    Section section{std::move(text), 0};
    normalizer->apply(section);
    return section.text;
}

TEST(Normalizer, FormsAreThoseOfUnicode) {
    const std::string text = "e\u0301 \u00e9 \ufb01 \u2460 \uac00 \u1100\u1161 \u304b\u3099";
    EXPECT_EQ(normal(form_normalizer(NormalForm::nfc), text), "\u00e9 \u00e9 \ufb01 \u2460 \uac00 \uac00 \u304c");
    EXPECT_EQ(normal(form_normalizer(NormalForm::nfd), text),
              "e\u0301 e\u0301 \ufb01 \u2460 \u1100\u1161 \u1100\u1161 \u304b\u3099");
    EXPECT_EQ(normal(form_normalizer(NormalForm::nfkc), text), "\u00e9 \u00e9 fi 1 \uac00 \uac00 \u304c");
    EXPECT_EQ(normal(form_normalizer(NormalForm::nfkd), text),
              "e\u0301 e\u0301 fi 1 \u1100\u1161 \u1100\u1161 \u304b\u3099");
}

// Only what is not composed goes through the composition, with the character before it.
TEST(Normalizer, ComposedTextAroundMarksStaysAsItIs) {
    const auto nfc = form_normalizer(NormalForm::nfc);
    EXPECT_EQ(normal(nfc, "\u4e2d\u6587a\u0323\u0307b\u0301"), "\u4e2d\u6587\u1ea1\u0307b\u0301");
    EXPECT_EQ(normal(nfc, "\u0301a"), "\u0301a");
    EXPECT_EQ(normal(nfc, "\u212b\u2126"), "\u00c5\u03a9"); // singletons
    EXPECT_EQ(normal(nfc, "\uac00\u11a8"), "\uac01");
    EXPECT_EQ(normal(nfc, "o\u0302\u0323"), "\u1ed9"); // marks are put in order first
}

TEST(Normalizer, LowerCaseGoesCharacterByCharacter) {
    EXPECT_EQ(normal(lowercase_normalizer(), "\u0130I\u03a3 \u1e9e\u01c5"), "i\u0307i\u03c3 \u00df\u01c6");
}

TEST(Normalizer, StripTakesWhiteSpaceOfItsSides) {
    EXPECT_EQ(normal(strip_normalizer(true, false), " \u3000a "), "a ");
    EXPECT_EQ(normal(strip_normalizer(false, true), " a \n"), " a");
    EXPECT_EQ(normal(strip_normalizer(true, true), " \t"), "");
    EXPECT_EQ(normal(strip_accents_normalizer(), "e\u0301\u0903x\u20dd"), "ex"); // all marks
}

TEST(Normalizer, ReplaceTakesTextsAndPatterns) {
    EXPECT_EQ(normal(replace_normalizer(Pattern::of_text("aa", "here"), "b"), "aaa"), "ba");
    EXPECT_EQ(normal(replace_normalizer(Pattern::of_text(".", "here"), ""), "a.b."), "ab");
    EXPECT_EQ(normal(replace_normalizer(Pattern::of_expression(" {2,}", "here"), " "), "a   b c"), "a b c");
    EXPECT_EQ(normal(replace_normalizer(Pattern::of_text("", "here"), "-"), "ab"), "-a-b-");
}

TEST(Normalizer, PrependLeavesAnEmptyTextEmpty) {
    EXPECT_EQ(normal(prepend_normalizer("_"), "a"), "_a");
    EXPECT_EQ(normal(prepend_normalizer("_"), ""), "");
}

TEST(Normalizer, BertCleansSetsApartStripsAndLowers) {
    const std::string text = "A\u00c9\t\x01x\u4e2d\u6587\u200d\ufffd";
    EXPECT_EQ(normal(bert_normalizer({}), text), "ae x \u4e2d  \u6587 ");
    EXPECT_EQ(normal(bert_normalizer({true, false, false, false}), text), "A\u00c9 x\u4e2d\u6587");
    EXPECT_EQ(normal(bert_normalizer({false, false, {}, false}), text), text); // accents go with the case
    EXPECT_EQ(normal(bert_normalizer({false, false, true, false}), "\u00c9"), "E");
    EXPECT_EQ(normal(bert_normalizer({}), "s\u08d6"),
              "s\u08d6"); // a mark of Unicode 9, which the library does not know
}

TEST(Normalizer, NmtDropsControlsAndMakesSpaces) {
    EXPECT_EQ(normal(nmt_normalizer(), "a\x01\tb\u200bc\u2581\u00a0\x0b"), "a b c \u00a0");
}

TEST(Normalizer, ByteLevelSpellsBytes) {
    EXPECT_EQ(normal(byte_level_normalizer(), "a \u00e9"), "a\u0120\u00c3\u00a9");
}

// A double array with the one entry "A" -> "b": the root's child for 'A' lies at 1 ^ 'A', its leaf beside it.
std::string small_map() {
    std::vector<std::uint32_t> units(256);
    units[0] = 1u << 10;                       // offset 1
    units[1 ^ 'A'] = 2u << 10 | 1u << 8 | 'A'; // offset 2, a leaf
    units[(1 ^ 'A') ^ 2] = 0x80000000u;        // its value: 0
    std::string map = raw(static_cast<std::uint32_t>(4 * units.size()));
    for (std::uint32_t unit : units) map += raw(unit);
    return map + "bb" + std::string(1, '\0');
}

TEST(Normalizer, CharacterMapsAreDoubleArrays) {
    const auto map = precompiled_normalizer(small_map(), "here");
    EXPECT_EQ(normal(map, "xAyA"), "xbbybb");
    EXPECT_EQ(normal(map, "A\u0301"), "bb"); // a short grapheme is looked up as a whole, and found by its beginning
    EXPECT_EQ(normal(map, "A\u0301\u0302\u0303"), "bb\u0301\u0302\u0303"); // a long one by its characters
}

TEST(Normalizer, DamagedCharacterMapsAreRefusedOrFindNothing) {
    EXPECT_ERROR(precompiled_normalizer("", "here"), "here holds 0 bytes");
    EXPECT_ERROR(precompiled_normalizer(raw(0x7fffffffu), "here"), "here says that its array takes");
    EXPECT_ERROR(precompiled_normalizer(raw(4u) + raw(0u) + "\xff", "here"), "here is not UTF-8");
    Mutator damaged(5);
    for (int i = 0; i < 2000; ++i) try {
            normal(precompiled_normalizer(damaged(small_map()), "here"), "xAyA\u0301\u4e2d");
        } catch (const Error&) {
        }
}

// How much of a text comes from the beginning of the input, which Metaspace's scheme "first" asks for.
TEST(Normalizer, KnowsWhatComesFromTheBeginning) {
    const auto at_start = [](const NormalizerPointer& normalizer, std::string text) {
        Section section{std::move(text), 1};
        normalizer->apply(section);
        return section.at_start;
    };
    EXPECT_EQ(at_start(strip_normalizer(true, true), " a"), 0);
    EXPECT_EQ(at_start(prepend_normalizer("__"), "ab"), 3);
    EXPECT_EQ(at_start(replace_normalizer(Pattern::of_text(" ", "here"), "___"), " a"), 3);
    EXPECT_EQ(at_start(replace_normalizer(Pattern::of_text(" a", "here"), "_"), " ab"), 0);
    EXPECT_EQ(at_start(lowercase_normalizer(), "Ab"), 1);
    EXPECT_EQ(at_start(bert_normalizer({}), "\x01"
                                            "a"),
              0);
}

TEST(Normalizer, TextsThatGrowWithoutEndAreRefused) {
    std::vector<NormalizerPointer> doubling;
    for (int i = 0; i < 60; ++i) doubling.push_back(replace_normalizer(Pattern::of_text("a", "here"), "aa"));
    EXPECT_ERROR(normal(sequence_normalizer(std::move(doubling)), "a"), "the tokenizer's rules make more than");
}

} // namespace
} // namespace tutti::test

#include "text/decoder.h"

#include "support/temporary_folder.h"

namespace tutti::test {
namespace {

using namespace tutti::text;

TEST(Decoder, ByteLevelJoinsBytesAndReplacesWhatIsNoText) {
    EXPECT_EQ(byte_level_decoder()->apply({"\u0120a", "\u00c3", "\u00a9"}), (Tokens{" a\u00e9"}));
    EXPECT_EQ(byte_level_decoder()->apply({"\u00e4\u00b8", "x"}), (Tokens{"\ufffdx"})); // one for a character begun
    EXPECT_EQ(byte_level_decoder()->apply({"\u00ff\u00fe"}), (Tokens{"\ufffd\ufffd"}));
    EXPECT_EQ(byte_level_decoder()->apply({"\u4e2d\u0120"}), (Tokens{"\u4e2d\u0120"})); // not all of it is bytes
}

TEST(Decoder, ByteFallbackReplacesEveryByteThatIsNoText) {
    EXPECT_EQ(byte_fallback_decoder()->apply({"a", "<0xE4>", "<0xB8>", "<0xAD>", "b"}), (Tokens{"a", "\u4e2d", "b"}));
    EXPECT_EQ(byte_fallback_decoder()->apply({"<0xE4>", "<0xB8>", "b"}), (Tokens{"\ufffd", "\ufffd", "b"}));
    EXPECT_EQ(byte_fallback_decoder()->apply({"<0xZZ>", "<0x4>"}), (Tokens{"<0xZZ>", "<0x4>"}));
}

TEST(Decoder, WordPieceJoinsContinuationsAndCleansUp) {
    EXPECT_EQ(word_piece_decoder("##", false)->apply({"##a", "##b", "c"}), (Tokens{"##a", "b", " c"}));
    EXPECT_EQ(word_piece_decoder("##", true)->apply({"do", "n't", "."}), (Tokens{"do", "n't", "."}));
}

TEST(Decoder, BpeTurnsSuffixesIntoSpaces) {
    EXPECT_EQ(bpe_decoder("</w>")->apply({"a</w>", "b", "c</w>"}), (Tokens{"a ", "b", "c"}));
    EXPECT_EQ(bpe_decoder("</w>")->apply({}), (Tokens{}));
}

TEST(Decoder, MetaspaceDropsTheFirstMarkUnlessNoneWasPrepended) {
    EXPECT_EQ(metaspace_decoder('_', PrependScheme::always)->apply({"_a_", "_b"}), (Tokens{"a", " b"}));
    EXPECT_EQ(metaspace_decoder('_', PrependScheme::never)->apply({"_a", "_b"}), (Tokens{" a", " b"}));
}

TEST(Decoder, CtcDropsRepetitionsAndPadding) {
    EXPECT_EQ(ctc_decoder("<pad>", "|", true)->apply({"h", "h", "<pad>", "i", "|", "|", "i", "i"}),
              (Tokens{"h", "i", " ", "i"}));
    EXPECT_EQ(ctc_decoder("<pad>", "|", false)->apply({"a", "|"}), (Tokens{"a", "|"}));
}

TEST(Decoder, ReplaceStripAndFuse) {
    EXPECT_EQ(replace_decoder(Pattern::of_text("_", "here"), " ")->apply({"_a_", ""}), (Tokens{" a ", ""}));
    EXPECT_EQ(replace_decoder(Pattern::of_expression("a|b", "here"), "")->apply({"xaby"}), (Tokens{"xy"}));
    EXPECT_EQ(strip_decoder(' ', 1, 0)->apply({"  a", "b "}), (Tokens{" a", "b "}));
    EXPECT_EQ(strip_decoder(' ', 9, 2)->apply({"  a   ", " "}), (Tokens{"a ", ""}));
    EXPECT_EQ(fuse_decoder()->apply({"a", "b"}), (Tokens{"ab"}));
    EXPECT_EQ(fuse_decoder()->apply({}), (Tokens{""}));
    std::vector<DecoderPointer> parts;
    parts.push_back(fuse_decoder());
    parts.push_back(strip_decoder('a', 1, 1));
    EXPECT_EQ(sequence_decoder(std::move(parts))->apply({"aa", "ba"}), (Tokens{"ab"}));
}

} // namespace
} // namespace tutti::test

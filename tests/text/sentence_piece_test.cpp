// A model of SentencePiece that is written here byte by byte, as its protocol buffer lays it out.
#include "support/temporary_folder.h"
#include "text/tokenizer.h"

#include <vector>

namespace tutti::test {
namespace {

using namespace tutti::text;
using Ids = std::vector<Id>;

std::string field(int number, const std::string& bytes) { // of bytes, shorter than 128
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string piece(const std::string& text, float score, char type = 1) {
    return field(1, field(1, text) + std::string(1, 2 << 3 | 5) + raw(score) + std::string{3 << 3, type});
}

// Unigram: unknown, two control pieces, then scores under which "ab" is one piece.
std::string small_model() {
    return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("\u2581", -3) + piece("a", -2) +
           piece("b", -2) + piece("ab", -1) + piece("\u2581ab", -3.5f) + field(3, field(1, "identity"));
}

TEST(SentencePiece, EncodesAndDecodesWithTheLibrary) {
    const TemporaryFolder folder;
    folder.write("tokenizer.model", small_model());
    const auto tokenizer = open_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->encode("ab ba", true), (Ids{7, 3, 5, 4})); // a space is put before a text
    EXPECT_EQ(tokenizer->encode("x", true), (Ids{3, 0}));
    EXPECT_EQ(tokenizer->encode("", true), (Ids{}));
    EXPECT_EQ(tokenizer->decode(Ids{7, 3, 5, 4, 99}, false), "ab ba");
    EXPECT_EQ(tokenizer->decode(Ids{1, 7, 2}, false), "<s>ab</s>");
    EXPECT_EQ(tokenizer->decode(Ids{1, 7, 2}, true), "ab");
    EXPECT_EQ(tokenizer->end_of_ids(), 8u);
    EXPECT_EQ(tokenizer->id_of("</s>"), 2u);
    EXPECT_ERROR(tokenizer->encode("\xff", true), "the text is not UTF-8");
}

TEST(SentencePiece, TakesSpecialTokensFromTheConfigBesideIt) {
    const TemporaryFolder folder;
    const std::string model = folder.write("tokenizer.model", small_model()).string();
    const auto config = [&](const std::string& text) { folder.write("tokenizer_config.json", text); };
    config(R"({"tokenizer_class": "LlamaTokenizer"})");
    EXPECT_EQ(open_tokenizer(model)->encode("ab", true), (Ids{1, 7}));
    EXPECT_EQ(open_tokenizer(model)->encode("ab", false), (Ids{7}));
    config(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "add_eos_token": true,
               "added_tokens_decoder": {"8": {"content": "<new>", "special": true}, "1": {"content": "<s>", "special": true}}})");
    const auto tokenizer = open_tokenizer(model);
    EXPECT_EQ(tokenizer->encode("ab<new><s>", true), (Ids{7, 8, 1, 2}));
    EXPECT_EQ(tokenizer->decode(Ids{7, 8}, false), "ab<new>");
    EXPECT_EQ(tokenizer->decode(Ids{7, 8}, true), "ab");
    config(R"({"added_tokens_decoder": {"9": {"content": "<new>"}}})");
    EXPECT_ERROR(open_tokenizer(model), "the added token \"<new>\" has the id 9, and would get 8");
    config(R"({"added_tokens_decoder": {"x": {"content": "<new>"}}})");
    EXPECT_ERROR(open_tokenizer(model), "has the key \"x\", which is no id");
}

TEST(SentencePiece, DamagedModelsAreReadOrRefused) {
    const TemporaryFolder folder;
    Mutator damaged(3);
    for (int i = 0; i < 300; ++i) try {
            const auto tokenizer = open_tokenizer(folder.write("tokenizer.model", damaged(small_model())));
            tokenizer->decode(tokenizer->encode("ab ba", true), true);
        } catch (const Error&) {
        }
}

} // namespace
} // namespace tutti::test

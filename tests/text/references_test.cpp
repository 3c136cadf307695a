// Ids and texts as Hugging Face's library (tokenizers 0.23) gives them, for tokenizers of seven kinds; and of more,
// where TUTTI_TOKENIZER_CASES names a folder with such cases.
#include "formats/json.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <cstdlib>
#include <vector>

namespace tutti::test {
namespace {

using namespace tutti::text;
using Ids = std::vector<Id>;

std::vector<nlohmann::json> read_cases(const fs::path& file) {
    std::vector<nlohmann::json> cases;
    const std::string lines = read_text(file);
    for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', begin), lines.size());
        cases.push_back(nlohmann::json::parse(lines.substr(begin, end - begin)));
        begin = end + 1;
    }
    return cases;
}

void expect_reference(const fs::path& folder) {
    const auto tokenizer = open_tokenizer(folder);
    const auto encoder = tokenizer->encoder();
    int wrong = 0;
    for (const nlohmann::json& one : read_cases(folder / "cases.jsonl")) {
        const std::string text = one["text"];
        Ids ids, plain;
        encoder->encode(text, true, ids);
        encoder->encode(text, false, plain);
        const bool equal = ids == one["ids"].get<Ids>() && plain == one["plain"].get<Ids>() &&
                           tokenizer->decode(ids, false) == one["decoded"].get<std::string>() &&
                           tokenizer->decode(ids, true) == one["decoded_plain"].get<std::string>();
        if (equal || ++wrong > 5) continue;
        ADD_FAILURE() << folder.filename() << ": " << one["text"].dump() << "\n ids     " << nlohmann::json(ids).dump()
                      << "\n not     " << one["ids"].dump() << "\n plain   " << nlohmann::json(plain).dump()
                      << "\n not     " << one["plain"].dump() << "\n decoded "
                      << nlohmann::json(tokenizer->decode(ids, false)).dump() << "\n not     " << one["decoded"].dump()
                      << "\n without " << nlohmann::json(tokenizer->decode(ids, true)).dump() << "\n not     "
                      << one["decoded_plain"].dump();
    }
    EXPECT_EQ(wrong, 0) << folder;
}

TEST(TokenizerReferences, IdsAndTextsAreThoseOfTheLibrary) {
    for (const fs::path& folder : entries_of(test_data() / "tokenizers"))
        if (is_folder(folder)) expect_reference(folder);
}

TEST(TokenizerReferences, IdsAndTextsOfFurtherKindsAre) {
    const char* folder = std::getenv("TUTTI_TOKENIZER_CASES");
    if (folder == nullptr) GTEST_SKIP() << "TUTTI_TOKENIZER_CASES names no folder";
    for (const fs::path& kind : entries_of(folder))
        if (is_folder(kind)) expect_reference(kind);
}

// Any text of any characters, and code, through the kinds that leave text as it is.
TEST(TokenizerReferences, ByteLevelKindsGiveEveryTextBack) {
    const std::vector<std::string> words = {"def f(x):\n    return x**2  # !?\n",
                                            "\tif (a[i] != 'b') {\r\n",
                                            "don't ",
                                            "   ",
                                            "2024-11-20 ",
                                            "\u4e2d\u6587",
                                            "e\u0301",
                                            "\U0001f468\u200d\U0001f469",
                                            "\0"};
    for (const char* kind : {"gpt2", "llama3"}) {
        const auto tokenizer = open_tokenizer(test_data() / "tokenizers" / kind);
        const auto encoder = tokenizer->encoder();
        for (std::uint32_t seed = 0; seed < 300; ++seed) {
            std::string text;
            for (std::uint32_t i = 0; i < 300; ++i) {
                const std::uint32_t drawn = philox_draw({8, 9}, seed, i);
                char32_t character = drawn % (drawn % 7 == 0 ? 0x110000 : 0x3000);
                if (character >= 0xD800 && character < 0xE000) character = 'x';
                if (drawn % 3 == 0)
                    text += words[drawn / 3 % words.size()];
                else
                    append(text, character);
            }
            Ids ids;
            encoder->encode(text, false, ids);
            ASSERT_EQ(tokenizer->decode(ids, false), text) << kind;
        }
    }
}

} // namespace
} // namespace tutti::test

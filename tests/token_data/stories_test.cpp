#include "data/stories.h"

#include "formats/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <sstream>

namespace tutti {

using namespace data;
using namespace formats;
namespace {

TEST(Stories, AreWhatTheyAlwaysWere) {
    Checksum checksum;
    const std::string text = generate_stories(1, 4'000'000);
    checksum.update(std::as_bytes(std::span(text)));
    EXPECT_EQ(checksum.hex(), "13906eec90527635");
    EXPECT_TRUE(
        story(1, 0).starts_with("Once upon a time, a squirrel named Mila lived under the old bridge. She was a "));
}

TEST(Stories, AStoryDependsOnSeedAndNumberAlone) {
    const std::string text = generate_stories(5, 10'000);
    EXPECT_TRUE(text.starts_with(story(5, 0) + "\n\n" + story(5, 1) + "\n\n"));
    EXPECT_TRUE(text.ends_with("\n\n"));
    EXPECT_GE(text.size(), 10'000u);
    EXPECT_NE(story(5, 0), story(6, 0));
}

TEST(Stories, AreVariedPlainTextWithoutLeftoversOfTheGrammar) {
    std::set<std::string> distinct, words;
    for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::string text = story(1, i);
        distinct.insert(text);
        EXPECT_EQ(text.find_first_of("{}|\n"), std::string::npos) << text;
        EXPECT_EQ(text.find("  "), std::string::npos) << text;
        for (const char* wrong : {" a a", " a e", " a i", " a o", " an b", " an f"})
            EXPECT_EQ(text.find(wrong), std::string::npos) << text;
        EXPECT_TRUE(text.ends_with('.') || text.ends_with('"')) << text;
        std::istringstream stream(text);
        for (std::string word; stream >> word;) words.insert(word);
    }
    EXPECT_EQ(distinct.size(), 2000u);
    EXPECT_GT(words.size(), 300u);
}

} // namespace
} // namespace tutti

#include "base/error.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Error, EndlessNamesAreShownByTheirBeginning) {
    const std::string endless(100'000, 'x'), shown = std::string(160, 'x') + "... (100000 characters)";
    EXPECT_EQ(with_short_names("cannot look at " + endless + ": File name too long"),
              "cannot look at " + shown + ": File name too long");
    EXPECT_EQ(with_short_names(endless), shown);
    EXPECT_EQ(Error(endless).what(), shown);
    EXPECT_EQ(WorldError(endless).what(), shown);
}

TEST(Error, SentencesAndNamesOfFilesStayWhole) {
    std::string sentence = "cannot read run/" + std::string(255, 'a') + ": ";
    for (int i = 0; i < 100; ++i) sentence += "a long story,  with spaces\nand lines; ";
    EXPECT_EQ(with_short_names(sentence), sentence);
    EXPECT_EQ(with_short_names(""), "");
}

TEST(Error, ShortenedNamesEndWithAWholeCharacter) {
    std::string name = "a", start = "a";
    for (int i = 0; i < 300; ++i) name += "\u00fc";
    for (int i = 0; i < 79; ++i) start += "\u00fc"; // 159 bytes, and the next would be half a letter
    EXPECT_EQ(with_short_names(name), start + "... (601 characters)");
}

} // namespace
} // namespace tutti

#include "terminal/words.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace terminal;
namespace {

TEST(Words, NumbersAreShownShort) {
    EXPECT_EQ(with_commas(0), "0");
    EXPECT_EQ(with_commas(999), "999");
    EXPECT_EQ(with_commas(-1234567), "-1,234,567");
    EXPECT_EQ(short_number(999.6), "1k");
    EXPECT_EQ(short_number(124e6), "124M");
    EXPECT_EQ(short_number(444.9e3, "FLOP"), "445 kFLOP");
    EXPECT_EQ(short_number(12, "FLOP"), "12 FLOP");
    EXPECT_EQ(short_number(4e19, "FLOP"), "40 EFLOP");
    EXPECT_EQ(in_words(70.58e9), "70.6 billion");
    EXPECT_EQ(in_words(999.7e6), "1 billion");
    EXPECT_EQ(in_words(124e6), "124 million");
    EXPECT_EQ(in_words(220544), "220,544");
}

} // namespace
} // namespace tutti

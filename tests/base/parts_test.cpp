#include "base/parts.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Parts, DivideWhatTheyCoverOnceAndWhole) {
    EXPECT_TRUE(divides({{{0, 2}}, {{2, 5}}}, 5));
    EXPECT_TRUE(divides({{{0, 1}, {3, 5}}, {{1, 3}}}, 5));
    EXPECT_FALSE(divides({{{0, 2}}, {{2, 5}}}, 6));         // an end that nobody has
    EXPECT_FALSE(divides({{{0, 3}}, {{2, 5}}}, 5));         // an index that two have
    EXPECT_FALSE(divides({{{0, 2}}, {{3, 5}}}, 5));         // a gap
    EXPECT_FALSE(divides({{{0, 5}}, {}}, 5));               // a rank with nothing
    EXPECT_FALSE(divides({{{3, 5}, {0, 1}}, {{1, 3}}}, 5)); // not ascending
}

TEST(Parts, AreInTheOrderOfRanksOnlyInOneRangeEach) {
    EXPECT_TRUE(in_rank_order({{{0, 2}}, {{2, 5}}}));
    EXPECT_FALSE(in_rank_order({{{2, 5}}, {{0, 2}}}));
    EXPECT_FALSE(in_rank_order({{{0, 1}, {3, 5}}, {{1, 3}}}));
}

TEST(Parts, AreTheSameAfterEncoding) {
    const Parts parts = {{{0, 1}, {3, 5}}, {{1, 3}}, {}};
    EXPECT_EQ(encode_parts(parts), (std::vector<std::int64_t>{2, 0, 1, 3, 5, 1, 1, 3, 0}));
    EXPECT_EQ(decode_parts(encode_parts(parts)), parts);
    EXPECT_EQ(count(parts), 5);
}

TEST(Parts, ThatEndEarlyAreRefused) {
    EXPECT_THROW(decode_parts({2, 0, 1}), Error);
    EXPECT_THROW(decode_parts({-1}), Error);
}

} // namespace
} // namespace tutti

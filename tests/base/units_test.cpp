#include "base/checked.h"
#include "base/counted.h"
#include "base/shape.h"
#include "base/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace tutti {
namespace {

TEST(Units, BytesPrintInBinaryUnits) {
    EXPECT_EQ(to_string(Bytes{0}), "0 B");
    EXPECT_EQ(to_string(Bytes{1023}), "1023 B");
    EXPECT_EQ(to_string(Bytes{1024}), "1.00 KiB");
    EXPECT_EQ(to_string(Bytes{3ll << 29}), "1.50 GiB");
    EXPECT_EQ(to_string(2 * Bytes{512} + Bytes{1024} - Bytes{512}), "1.50 KiB");
}

TEST(Units, SizesAreReadInDecimalAndBinaryUnits) {
    EXPECT_EQ(parse_bytes("4096"), Bytes{4096});
    EXPECT_EQ(parse_bytes("256MB"), Bytes{256'000'000});
    EXPECT_EQ(parse_bytes("24 GiB"), Bytes{std::int64_t{24} << 30});
    EXPECT_EQ(parse_bytes("1.5kib"), Bytes{1536});
    for (const char* bad : {"", "MB", "-1GB", "1XB", "1GiBs", "nan", "1e30TB"}) EXPECT_FALSE(parse_bytes(bad)) << bad;
}

TEST(Counted, NounsFollowTheirNumber) {
    EXPECT_EQ(counted(1, "token"), "1 token");
    EXPECT_EQ(counted(0, "token"), "0 tokens");
    EXPECT_EQ(counted(2u, "micro-batch"), "2 micro-batches");
}

TEST(Units, SecondsPrintInTheUnitThatFits) {
    EXPECT_EQ(to_string(Seconds{12e-6}), "12 us");
    EXPECT_EQ(to_string(Seconds{0.35}), "350 ms");
    EXPECT_EQ(to_string(Seconds{42}), "42 s");
    EXPECT_EQ(to_string(Seconds{125}), "2 m 05 s");
    EXPECT_EQ(to_string(Seconds{2 * 3600 + 5 * 60}), "2 h 05 m");
}

TEST(Checked, ArithmeticThatWouldWrapGivesNothing) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(checked_multiply<std::int64_t>(most, 2), std::nullopt);
    EXPECT_EQ(checked_multiply<std::int64_t>(1ll << 31, 1ll << 31), 1ll << 62);
    EXPECT_EQ(checked_add<std::uint64_t>(std::numeric_limits<std::uint64_t>::max(), 1), std::nullopt);
    EXPECT_EQ(checked_add<std::int64_t>(most, 0), most);
    EXPECT_THROW(narrow<std::int32_t>(most), Bug);
    EXPECT_THROW(divide_exactly(7, 2), Bug);
    EXPECT_EQ(divide_exactly(8, 2), 4);
    EXPECT_EQ(round_up(9, 8), 16);
}

TEST(Shape, StridesAreRowMajorAndNineDimensionsAreABug) {
    EXPECT_EQ(dense_strides({2, 3, 4}), (Shape{12, 4, 1}));
    EXPECT_EQ(to_string(Shape{2, 3, 4}), "[2,3,4]");
    EXPECT_EQ(Shape{}.elements(), 1);
    EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Bug);
}

} // namespace
} // namespace tutti

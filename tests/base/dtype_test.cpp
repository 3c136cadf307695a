#include "base/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Known {
    float value;
    std::uint16_t bits;
};

TEST(DType, NamesParseBackToTheirTypes) {
    for (DType dtype :
         {DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int64, DType::int32, DType::boolean})
        EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    EXPECT_EQ(parse_dtype("bfloat16"), DType::bfloat16);
    EXPECT_EQ(parse_dtype("fp32"), DType::float32);
    EXPECT_EQ(parse_dtype("half"), DType::float16);
    EXPECT_EQ(parse_dtype("fp64"), DType::float64);
    EXPECT_EQ(parse_dtype("float8"), std::nullopt);
    EXPECT_EQ(size_of(DType::bfloat16), 2);
    EXPECT_TRUE(is_floating(DType::float16));
    EXPECT_FALSE(is_floating(DType::boolean));
}

TEST(BFloat16, RoundsToNearestEvenWithKnownBits) {
    constexpr std::array<Known, 14> known = {{{0.0f, 0x0000},
                                              {-0.0f, 0x8000},
                                              {1.0f, 0x3f80},
                                              {-2.0f, 0xc000},
                                              {3.14159265f, 0x4049},
                                              {1.0f + 0x1p-8f, 0x3f80},            // a tie, down to even
                                              {1.0f + 3 * 0x1p-8f, 0x3f82},        // a tie, up to even
                                              {1.0f + 0x1p-8f + 0x1p-23f, 0x3f81}, // just above a tie
                                              {0x1.fep127f, 0x7f7f},               // the largest
                                              {0x1.ffp127f, 0x7f80},               // rounds to infinity
                                              {infinity, 0x7f80},
                                              {-infinity, 0xff80},
                                              {0x1p-133f, 0x0001},   // the smallest subnormal
                                              {0x1p-134f, 0x0000}}}; // half of it: a tie, down to zero
    for (const Known& row : known) EXPECT_EQ(BFloat16(row.value).bits, row.bits) << row.value;
}

TEST(BFloat16, EveryValueSurvivesARoundTrip) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
        BFloat16 stored;
        stored.bits = static_cast<std::uint16_t>(bits);
        const float wide = static_cast<float>(stored);
        if (std::isnan(wide))
            EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(wide))));
        else
            ASSERT_EQ(BFloat16(wide).bits, bits);
    }
}

TEST(Float16, RoundsToNearestEvenWithKnownBits) {
    constexpr std::array<Known, 18> known = {{{0.0f, 0x0000},
                                              {-0.0f, 0x8000},
                                              {1.0f, 0x3c00},
                                              {-2.0f, 0xc000},
                                              {0.1f, 0x2e66},
                                              {65504.0f, 0x7bff},            // the largest
                                              {65519.996f, 0x7bff},          // just below the tie with infinity
                                              {65520.0f, 0x7c00},            // the tie: to infinity
                                              {-1e9f, 0xfc00},               //
                                              {infinity, 0x7c00},            //
                                              {1.0f + 0x1p-11f, 0x3c00},     // a tie, down to even
                                              {1.0f + 3 * 0x1p-11f, 0x3c02}, // a tie, up to even
                                              {0x1p-14f, 0x0400},            // the smallest normal
                                              {0x1.ff8p-15f, 0x03ff},        // the largest subnormal
                                              {0x1p-24f, 0x0001},            // the smallest subnormal
                                              {0x1p-25f, 0x0000},            // half of it: a tie, down to zero
                                              {0x1.8p-24f, 0x0002},          // a tie, up to even
                                              {0x1.000002p-25f, 0x0001}}};   // just above a tie
    for (const Known& row : known) EXPECT_EQ(Float16(row.value).bits, row.bits) << row.value;
}

TEST(Float16, EveryValueSurvivesARoundTrip) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
        Float16 stored;
        stored.bits = static_cast<std::uint16_t>(bits);
        const float wide = static_cast<float>(stored);
        if (std::isnan(wide))
            EXPECT_TRUE(std::isnan(static_cast<float>(Float16(wide))));
        else
            ASSERT_EQ(Float16(wide).bits, bits);
    }
}

TEST(SixteenBitFloats, NanStaysNanWhateverItsPayload) {
    for (std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffc00000u, 0xff800001u}) {
        const float value = std::bit_cast<float>(bits);
        EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(value))));
        EXPECT_TRUE(std::isnan(static_cast<float>(Float16(value))));
    }
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan))));
}

} // namespace
} // namespace tutti

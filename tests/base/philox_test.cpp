#include "base/philox.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Words = std::array<std::uint32_t, 4>;

// From kat_vectors of Random123, "philox4x32 10".
TEST(Philox, GivesThePublishedKnownAnswers) {
    EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawsAreTheWordsOfTheirBlock) {
    const PhiloxKey key{3, 4};
    const std::uint64_t stream = 0x100000005ull, block = 0x200000001ull;
    const Words words = philox(key, {1, 2, 5, 1});
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(philox_draw(key, stream, 4 * block + i), words[i]);
}

TEST(Philox, UniformsStayBelowOne) {
    EXPECT_EQ(uniform_from_bits(0), 0.0f);
    EXPECT_LT(uniform_from_bits(0xffffffff), 1.0f);
    EXPECT_EQ(uniform_from_bits(0x80000000), 0.5f);
}

TEST(MixBits, TellsItsArgumentsApart) {
    EXPECT_NE(mix_bits(1, 2), mix_bits(2, 1));
    EXPECT_NE(mix_bits(0, 0), mix_bits(0, 1));
}

} // namespace
} // namespace tutti

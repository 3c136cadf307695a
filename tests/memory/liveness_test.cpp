#include "memory/liveness.h"

#include "base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {

using namespace memory;
namespace {

bool overlap(const LiveBuffer& a, const LiveBuffer& b) {
    const bool in_time = a.first <= b.last && b.first <= a.last;
    return in_time && a.offset < b.offset + b.size.count && b.offset < a.offset + a.size.count;
}

TEST(Liveness, BuffersOfDifferentMomentsShareMemory) {
    std::vector<LiveBuffer> buffers = {{{300}, 0, 1}, {{300}, 2, 3}};
    EXPECT_EQ(place_buffers(buffers), Bytes{512});
    EXPECT_EQ(buffers[0].offset, buffers[1].offset);
}

TEST(Liveness, BuffersThatMeetAtOneMomentDoNotShare) {
    std::vector<LiveBuffer> buffers = {{{256}, 0, 2}, {{256}, 2, 3}};
    EXPECT_EQ(place_buffers(buffers), Bytes{512});
}

TEST(Liveness, SmallBuffersFillGapsBetweenLargeOnes) {
    // The two large ones leave a gap of 256 bytes at time point 1; the small one fits into it.
    std::vector<LiveBuffer> buffers = {{{1024}, 0, 1}, {{256}, 0, 0}, {{512}, 0, 1}, {{192}, 1, 1}};
    EXPECT_EQ(place_buffers(buffers), Bytes{1024 + 512 + 256});
}

TEST(Liveness, RandomIntervalsNeverOverlapAndNeverExceedTheirSum) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        std::uint64_t draw = 0;
        auto random = [&](std::uint32_t below) { return philox_draw({}, seed, draw++) % below; };
        std::vector<LiveBuffer> buffers(1 + random(60));
        std::int64_t sum = 0;
        for (LiveBuffer& buffer : buffers) {
            buffer.size = {1 + random(5000)};
            buffer.first = static_cast<std::int32_t>(random(30));
            buffer.last = buffer.first + static_cast<std::int32_t>(random(10));
            sum += (buffer.size.count + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
        }
        const Bytes total = place_buffers(buffers);
        EXPECT_LE(total.count, sum);
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            EXPECT_EQ(buffers[i].offset % buffer_alignment, 0);
            EXPECT_LE(buffers[i].offset + buffers[i].size.count, total.count);
            for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(overlap(buffers[i], buffers[j])) << seed;
        }
    }
}

// Chunks that are whole in turn, two at a time, the last one a little larger: the equal ones alternate.
TEST(Liveness, BuffersThatComeInTurnTakeNoMoreThanTwo) {
    std::vector<LiveBuffer> buffers;
    for (int i = 0; i < 4; ++i) buffers.push_back({{4096}, i, i + 1});
    buffers.push_back({{5120}, 4, 5});
    EXPECT_EQ(place_buffers(buffers), Bytes{4096 + 5120});
    // Two of each time point, one a little larger in the middle: places of its size, and not one more.
    buffers.clear();
    for (int part = 0; part < 2; ++part)
        for (int i = 0; i < 8; ++i) buffers.push_back({{i == 6 ? 5120 : 4096}, 2 * i + part, 2 * i + part + 3});
    EXPECT_LE(place_buffers(buffers), Bytes{4 * 5120});
    std::vector<LiveBuffer> none;
    EXPECT_EQ(place_buffers(none), Bytes{0});
}

} // namespace
} // namespace tutti

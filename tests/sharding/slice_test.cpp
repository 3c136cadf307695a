#include "sharding/slice.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {

using namespace sharding;
namespace {

// Elements [first, first + count) of a slice, by walking its runs.
std::vector<std::int64_t> elements_of(const TensorSlice& slice, std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> result;
    for (const SliceRun& run : slice.runs({first, first + count})) {
        EXPECT_EQ(run.part, static_cast<std::int64_t>(result.size()));
        for (std::int64_t i = 0; i < run.count; ++i) result.push_back(run.whole + i);
    }
    return result;
}

TEST(TensorSlice, RunsVisitTheElementsInOrder) {
    const TensorSlice slice{{4, 6}, {{{1, 3}}, {{0, 2}, {4, 5}}}};
    EXPECT_EQ(slice.shape(), (Shape{2, 3}));
    EXPECT_EQ(elements_of(slice, 0, 6), (std::vector<std::int64_t>{6, 7, 10, 12, 13, 16}));
    EXPECT_EQ(elements_of(slice, 1, 3), (std::vector<std::int64_t>{7, 10, 12}));
}

TEST(TensorSlice, WholeDimensionsMoveAsOneRun) {
    const TensorSlice rows{{4, 6}, {{{1, 3}}, {{0, 6}}}};
    EXPECT_EQ(rows.runs({0, 12}), (std::vector<SliceRun>{{.whole = 6, .part = 0, .count = 12}}));
    EXPECT_EQ(elements_of(TensorSlice::all_of({2, 2}), 1, 2), (std::vector<std::int64_t>{1, 2}));
}

TEST(TensorSlice, ASliceOfASliceCountsWithinIt) {
    const TensorSlice outer{{8}, {{{1, 3}, {5, 8}}}};
    const TensorSlice inner{{5}, {{{1, 4}}}};
    EXPECT_EQ(outer.within(inner).dims[0], (Ranges{{2, 3}, {5, 7}}));
}

TEST(Ranges, EvenPartsGiveTheRestToTheFirst) {
    const auto parts = even_parts(5, 2, 3);
    EXPECT_EQ(parts[0], (Ranges{{0, 4}}));
    EXPECT_EQ(parts[1], (Ranges{{4, 8}}));
    EXPECT_EQ(parts[2], (Ranges{{8, 10}}));
    EXPECT_EQ(count(even_parts(1, 3, 2)[1]), 0);
}

} // namespace
} // namespace tutti

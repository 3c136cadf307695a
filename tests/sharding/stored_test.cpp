// What is held of stored tensors, where parameters are views of them.
#include "ops/operators.h"
#include "sharding/stored.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace ops;
using namespace sharding;
namespace {

const Parts halves = even_parts(4, 1, 2);

struct Views {
    Graph graph{all_operators()};
    std::int32_t stored = -1;

    explicit Views(Shape shape) { stored = graph.add_stored("w", {DType::float32, shape}); }
    void add(Shape shape, Layout layout) { graph.add_parameter(stored, shape, std::move(layout)); }
};

TEST(StoredTensors, ATransposedParameterSplitsTheOtherDimension) {
    Views views({3, 4});
    views.add({4, 3}, {{1, 4}, 0});
    const StoredPlacement placed = place_stored(views.graph, std::vector{Sharding::split(0, halves)}, 1);
    EXPECT_EQ(placed.stored[0].dims, (std::vector<Ranges>{{{0, 3}}, {{2, 4}}}));
    EXPECT_EQ(placed.layouts[0], (Layout{{1, 2}, 0}));
    EXPECT_TRUE(placed.parameters[0].is_split());
}

// Rows of queries and of keys in one tensor.
TEST(StoredTensors, PiecesThatSplitOneDimensionAreJoined) {
    Views views({8, 3});
    views.add({4, 3}, {{3, 1}, 0});
    views.add({4, 3}, {{3, 1}, 12});
    const Sharding uneven = Sharding::split(0, {{{0, 3}}, {{3, 4}}});
    const std::vector wanted = {Sharding::split(0, halves), uneven};
    const StoredPlacement first = place_stored(views.graph, wanted, 0), second = place_stored(views.graph, wanted, 1);
    EXPECT_EQ(first.stored[0].dims[0], (Ranges{{0, 2}, {4, 7}}));
    EXPECT_EQ(second.stored[0].dims[0], (Ranges{{2, 4}, {7, 8}}));
    EXPECT_EQ(first.layouts[1], (Layout{{3, 1}, 6}));
    EXPECT_EQ(second.layouts[1], (Layout{{3, 1}, 6}));
}

TEST(StoredTensors, StayWholeWhereParametersDisagree) {
    Views views({8, 4});
    views.add({4, 4}, {{4, 1}, 0});
    views.add({4, 4}, {{4, 1}, 16});
    for (const Sharding& other : {Sharding{}, Sharding::split(1, halves)}) {
        const StoredPlacement placed = place_stored(views.graph, std::vector{Sharding::split(0, halves), other}, 0);
        EXPECT_TRUE(placed.stored[0].is_whole());
        EXPECT_TRUE(placed.parameters[0].is_replicated());
        EXPECT_EQ(placed.layouts[1], (Layout{{4, 1}, 16}));
    }
}

TEST(StoredTensors, StayWholeWhereTheSamePieceIsSplitInTwoWays) {
    Views views({4, 3});
    views.add({4, 3}, {{3, 1}, 0});
    views.add({4, 3}, {{3, 1}, 0});
    const Sharding even = Sharding::split(0, halves), uneven = Sharding::split(0, {{{0, 1}}, {{1, 4}}});
    EXPECT_FALSE(place_stored(views.graph, std::vector{even, even}, 0).stored[0].is_whole());
    EXPECT_TRUE(place_stored(views.graph, std::vector{even, uneven}, 0).stored[0].is_whole());
}

// What no parameter shows belongs to the checkpoint all the same.
TEST(StoredTensors, StayWholeWhereSomeOfThemIsNoParameter) {
    Views views({5, 3});
    views.add({4, 3}, {{3, 1}, 3});
    EXPECT_TRUE(place_stored(views.graph, std::vector{Sharding::split(0, halves)}, 0).stored[0].is_whole());
}

// Another stage of the model has decided: here only the second half of the rows is read.
TEST(StoredTensors, AreOwnedAsGivenWhateverTheirParametersAre) {
    Views views({8, 3});
    views.add({4, 3}, {{3, 1}, 12});
    const Sharding given = Sharding::split(0, {{{0, 2}, {4, 7}}, {{2, 4}, {7, 8}}});
    const auto state = state_of_view(views.graph, views.graph.parameters()[0], given);
    ASSERT_TRUE(state.has_value());
    EXPECT_EQ(*state, Sharding::split(0, {{{0, 3}}, {{3, 4}}}));
    const StoredPlacement placed =
        place_stored(views.graph, std::vector{*state}, 1, std::vector<std::optional<Sharding>>{given});
    EXPECT_EQ(placed.stored[0].dims[0], (Ranges{{2, 4}, {7, 8}}));
    EXPECT_EQ(placed.states[0], given);
    EXPECT_EQ(placed.layouts[0], (Layout{{3, 1}, 6}));
    // Ranks that own the first half alone have nothing of it.
    EXPECT_FALSE(state_of_view(views.graph, views.graph.parameters()[0], Sharding::split(0, {{{0, 4}}, {{4, 8}}})));
    EXPECT_EQ(place_stored(views.graph, std::vector{Sharding{}}, 0, std::vector<std::optional<Sharding>>{Sharding{}})
                  .stored[0]
                  .dims[0],
              (Ranges{{0, 8}}));
}

TEST(StoredTensors, StayWholeWhereAParameterIsNoPlainView) {
    Views flat({2, 6});
    flat.add({12}, {{1}, 0});
    EXPECT_TRUE(
        place_stored(flat.graph, std::vector{Sharding::split(0, even_parts(12, 1, 2))}, 0).stored[0].is_whole());
    Views factored({2, 8});
    factored.add({2, 2, 4}, {{8, 4, 1}, 0});
    EXPECT_TRUE(place_stored(factored.graph, std::vector{Sharding::split(2, halves)}, 0).stored[0].is_whole());
}

} // namespace
} // namespace tutti

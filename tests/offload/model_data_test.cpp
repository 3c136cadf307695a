#include "offload/execution/model_data.h"

#include "support/rank_model.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti {

using namespace memory;
using namespace sharding;
using namespace test;
namespace {

using test::ModelTensor;
using test::RankModel;
using test::RankPlan;
using test::Split;

constexpr std::array regions = {Region::weights, Region::gradients, Region::master, Region::moments1, Region::moments2};

const std::vector<ModelTensor> model = {{"embedding", {13, 6}, Split::rows, true},
                                        {"norm", {6}},
                                        {"attention", {6, 21}, Split::heads},
                                        {"attention bias", {21}, Split::heads},
                                        {"projection", {7, 6}, Split::columns},
                                        {"up", {11, 3, 5}, Split::columns},
                                        {"head", {1}}};

test::Precisions narrow_weights() { return {.weights = DType::bfloat16}; }

TEST(ModelData, OneRankOwnsAndSavesEverything) {
    const RankModel one(model, {.precisions = narrow_weights()}, 0);
    ASSERT_EQ(one.data().tensors(), static_cast<std::int32_t>(model.size()));
    for (Region region : regions)
        for (std::int32_t i = 0; i < one.data().tensors(); ++i) {
            const Range all{0, model[static_cast<std::size_t>(i)].shape.elements()};
            EXPECT_EQ(one.data().owned(region, i), all);
            EXPECT_EQ(one.data().saved(region, i), all);
        }
}

// Chunks of other regions, and what lies behind the owned range, would be written over.
TEST(ModelData, WhatIsWrittenIsReadAgainWhateverPartIsOwned) {
    for (int zero = 0; zero <= 3; ++zero) {
        const RankPlan plan{.mesh = {.pipe = 2, .data = 3, .tensor = 2},
                            .zero = zero,
                            .precisions = narrow_weights(),
                            .chunk_elements = 128};
        for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
            const RankModel one(model, plan, rank);
            for (Region region : regions)
                for (std::int32_t i = 0; i < one.data().tensors(); ++i)
                    if (const Range owned = one.data().owned(region, i); owned.size() > 0)
                        one.data().write(
                            region, i, owned.begin,
                            test::in_type(one.data().dtype(region), test::values_of(one.data(), region, i, region)));
            for (Region region : regions)
                EXPECT_EQ(test::difference(one.data(), region, region), "") << "zero " << zero << " rank " << rank;
        }
    }
}

TEST(ModelData, OverAllRanksEveryElementIsSavedOnce) {
    for (const Mesh& mesh : {Mesh{2, 2, 2}, Mesh{3, 1, 3}, Mesh{1, 5, 1}, Mesh{1, 2, 4}})
        for (int zero = 0; zero <= 3; ++zero)
            for (Region region : regions) {
                std::map<std::string, std::vector<int>> times;
                for (const ModelTensor& tensor : model)
                    times[tensor.name].resize(static_cast<std::size_t>(tensor.shape.elements()));
                for (int rank = 0; rank < mesh.ranks(); ++rank) {
                    const RankModel one(model, {.mesh = mesh, .zero = zero, .precisions = narrow_weights()}, rank);
                    for (std::int32_t i = 0; i < one.data().tensors(); ++i) {
                        const Range saved = one.data().saved(region, i);
                        const OwnedTensor& tensor = one.data().tensor(i);
                        for (const SliceRun& run : tensor.slice.runs(saved))
                            for (std::int64_t k = run.whole; k < run.whole + run.count; ++k)
                                ++times[tensor.name][static_cast<std::size_t>(k)];
                    }
                }
                for (const auto& [name, counts] : times)
                    for (int count : counts) ASSERT_EQ(count, 1) << name << " " << name_of(region) << " zero " << zero;
            }
}

TEST(ModelData, MemoryIsTakenForWhatIsOwnedAlone) {
    const RankPlan plan{.mesh = {.pipe = 1, .data = 3, .tensor = 1}, .zero = 1, .chunk_elements = 128};
    std::int64_t whole = 0, shares = 0;
    for (int rank = 0; rank < 3; ++rank) {
        const RankModel one(model, plan, rank);
        const ChunkLayout& layout = one.data().layout();
        for (std::int32_t c = 0; c < static_cast<std::int32_t>(layout.chunks.size()); ++c) {
            whole += layout.chunks[static_cast<std::size_t>(c)].elements;
            shares += one.data().owned_of_chunk(Region::moments1, c).size();
            if (c > 0) { // owned ranges lie one behind the other
                const Range before = one.data().owned_of_chunk(Region::moments1, c - 1);
                EXPECT_EQ(one.data().chunk(Region::moments1, c) - one.data().chunk(Region::moments1, c - 1),
                          before.size() * 4);
            }
        }
    }
    EXPECT_EQ(whole, 3 * shares);
}

// A rank may have no share in a region, or no tensors at all; what kinds of data there are is still known.
TEST(ModelData, ARankWithNothingInARegionStillKnowsThatItIsThere) {
    const std::vector<ModelTensor> tiny = {{"a", {3}}};
    const RankModel second(tiny, {.mesh = {.pipe = 1, .data = 2}, .zero = 3, .precisions = narrow_weights()}, 1);
    EXPECT_TRUE(second.data().has(Region::master));
    EXPECT_EQ(second.data().owned(Region::master, 0), Range{});
    const RankModel nothing(tiny, {.mesh = {.pipe = 2}, .precisions = narrow_weights()}, 1);
    EXPECT_EQ(nothing.data().tensors(), 0);
    EXPECT_TRUE(nothing.data().has(Region::master));
    EXPECT_EQ(nothing.data().dtype(Region::weights), DType::bfloat16);
}

TEST(ModelData, ElementsThatAreNotOwnedCannotBeRead) {
    const RankModel first(model, {.mesh = {.data = 2}, .zero = 1, .chunk_elements = 128}, 0);
    std::array<float, 78> all{};
    const std::span bytes = std::as_writable_bytes(std::span(all));
    first.data().read(Region::weights, 0, 0, bytes);
    EXPECT_THROW(first.data().read(Region::moments1, 0, 0, bytes), Bug);
    EXPECT_THROW(first.data().read(Region::master, 0, 0, bytes.first(4)), Bug); // float32 has no master copy
}

} // namespace
} // namespace tutti

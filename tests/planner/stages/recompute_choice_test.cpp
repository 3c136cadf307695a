// Which blocks are recomputed: against every subset of small stages, and examples worked out by hand.
#include "planner/stages/recompute_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tutti::test {

using namespace planner;
using namespace schedule;
namespace {

constexpr RecomputeRule as_needed{}, none{.which = Recomputing::none}, full{.which = Recomputing::all};

StageActivations equal_blocks(int first, int count, int in_flight, std::int64_t budget) {
    StageActivations stage{{budget}, {1000}, in_flight, {}};
    for (int b = 0; b < count; ++b) stage.blocks.push_back({first + b, {100}, {0}, {5}});
    return stage;
}

std::vector<double> fractions(const std::vector<StageActivations>& stages,
                              const std::vector<std::vector<int>>& chosen) {
    std::vector<double> result;
    for (std::size_t s = 0; s < stages.size(); ++s)
        result.push_back(static_cast<double>(chosen[s].size()) / static_cast<double>(stages[s].blocks.size()));
    return result;
}

// Merak's example: four stages, one micro-batch less in flight on each.
TEST(RecomputeChoice, LaterStagesKeepMoreAsTheyHoldFewerMicroBatches) {
    std::vector<StageActivations> stages;
    // 800 of the active micro-batch, and a quarter of 800 for each of three that wait in the first stage.
    for (int s = 0; s < 4; ++s) stages.push_back(equal_blocks(8 * s, 8, 4 - s, 1000 + 800 + 3 * 200));
    const std::vector<double> expected = {0.75, 0.625, 0.25, 0};
    const auto chosen = choose_recompute(stages, as_needed, Recompute::early);
    EXPECT_EQ(fractions(stages, chosen), expected);
    for (std::size_t s = 0; s < 4; ++s) EXPECT_LE(peak_of(stages[s], chosen[s], Recompute::early), stages[s].budget);
    EXPECT_EQ(chosen[1], (std::vector<int>{8, 9, 10, 11, 12}));
}

TEST(RecomputeChoice, AShareIsThatOfEveryStageToTheNearestBlock) {
    std::vector<StageActivations> stages;
    for (int s = 0; s < 4; ++s) stages.push_back(equal_blocks(8 * s, 8 - s, 4 - s, 0)); // 8, 7, 6 and 5 blocks
    for (const Recompute when : {Recompute::early, Recompute::on_gradient}) {
        auto counts = [&](double share) {
            std::vector<std::size_t> sizes;
            for (const std::vector<int>& stage : choose_recompute(stages, {.share = share}, when))
                sizes.push_back(stage.size());
            return sizes;
        };
        EXPECT_EQ(counts(0.5), (std::vector<std::size_t>{4, 4, 3, 3}));
        EXPECT_EQ(counts(0.75), (std::vector<std::size_t>{6, 5, 5, 4}));
        EXPECT_EQ(counts(0.05), (std::vector<std::size_t>{0, 0, 0, 0}));
    }
    // Blocks that would free nothing count, and are never recomputed.
    stages[0].blocks[0].boundary = stages[0].blocks[0].kept;
    EXPECT_EQ(choose_recompute(stages, {.share = 0.9}, Recompute::on_gradient)[0],
              (std::vector<int>{1, 2, 3, 4, 5, 6, 7}));
}

TEST(RecomputeChoice, NoneAndAll) {
    const std::vector<StageActivations> stages = {equal_blocks(0, 3, 2, 0), equal_blocks(3, 2, 1, 0)};
    const std::vector<std::vector<int>> nothing(2), all = {{0, 1, 2}, {3, 4}};
    EXPECT_EQ(choose_recompute(stages, none, Recompute::early), nothing);
    EXPECT_EQ(choose_recompute(stages, full, Recompute::early), all);
    EXPECT_EQ(choose_recompute(stages, full, Recompute::never), nothing);
    // Nothing fits: as much as helps. The last stage has one micro-batch, whose activations are all there in any case.
    EXPECT_EQ(choose_recompute(stages, as_needed, Recompute::early), (std::vector<std::vector<int>>{{0, 1, 2}, {}}));
    EXPECT_EQ(choose_recompute(stages, as_needed, Recompute::on_gradient), all);
}

// Against every subset of small stages with odd sizes.
TEST(RecomputeChoice, TakesTheLeastWorkThatFits) {
    std::mt19937 random(5);
    auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
    int fitted = 0, partly = 0;
    for (int round = 0; round < 300; ++round) {
        StageActivations stage{{}, {number(0, 50)}, number(1, 4), {}};
        const int count = number(1, 8);
        Bytes most = stage.fixed;
        for (int b = 0; b < count; ++b) {
            const std::int64_t kept = number(1, 40);
            stage.blocks.push_back({b, {kept}, {number(0, static_cast<int>(kept) + 2)}, {1.0 * number(1, 9)}});
            most += stage.in_flight * Bytes{kept};
        }
        stage.budget = {number(static_cast<int>(most.count) / 2, static_cast<int>(most.count))};
        for (const Recompute when : {Recompute::early, Recompute::on_gradient}) {
            double least = std::numeric_limits<double>::infinity();
            auto work = [&](const std::vector<int>& blocks) {
                double sum = 0;
                for (int b : blocks) sum += stage.blocks[static_cast<std::size_t>(b)].recomputed.count;
                return sum;
            };
            for (int subset = 0; subset < 1 << count; ++subset) {
                std::vector<int> blocks;
                for (int b = 0; b < count; ++b)
                    if (subset >> b & 1) blocks.push_back(b);
                if (peak_of(stage, blocks, when) <= stage.budget) least = std::min(least, work(blocks));
            }
            const auto chosen = choose_recompute(std::span(&stage, 1), as_needed, when)[0];
            const bool fits = peak_of(stage, chosen, when) <= stage.budget;
            EXPECT_EQ(fits, std::isfinite(least));
            if (fits) {
                EXPECT_EQ(work(chosen), least);
            }
            fitted += fits;
            partly += fits && !chosen.empty();
        }
    }
    EXPECT_GT(fitted, 200);
    EXPECT_GT(partly, 100);
}

// Of a rank with blocks of several stages: what they free and what the active micro-batch has beside need not go
// together, as they do in a single stage.
TEST(LeastRecomputation, IsWhatTryingEverySetGives) {
    std::mt19937 random(11);
    auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
    int fitted = 0;
    for (int round = 0; round < 500; ++round) {
        std::vector<RecomputableBlock> blocks;
        double all = 0;
        for (int b = 0, count = number(1, 9); b < count; ++b) {
            const double freed = number(0, 6) == 0 ? -number(0, 5) : number(1, 30);
            blocks.push_back({.stage = b / 3,
                              .block = b,
                              .work = 1.0 * number(0, 9),
                              .freed = freed,
                              .active = number(0, 1) == 0 ? 0.0 : 1.0 * number(0, 12)});
            all += std::max(0.0, freed);
        }
        const double excess = number(1, static_cast<int>(all) + 5);
        double least = std::numeric_limits<double>::infinity();
        for (unsigned set = 0; set < 1U << blocks.size(); ++set) {
            double work = 0, freed = 0, active = 0;
            for (std::size_t b = 0; b < blocks.size(); ++b) {
                if ((set >> b & 1U) == 0) continue;
                work += blocks[b].work;
                freed += blocks[b].freed;
                active = std::max(active, blocks[b].active);
            }
            if (freed - active >= excess) least = std::min(least, work);
        }
        const RecomputeChoice chosen = least_recomputation(blocks, excess);
        EXPECT_EQ(chosen.fits, std::isfinite(least));
        EXPECT_TRUE(std::ranges::is_sorted(chosen.blocks));
        if (!chosen.fits) {
            EXPECT_EQ(chosen.blocks, full_recomputation(blocks).blocks);
            continue;
        }
        double work = 0;
        for (const int b : chosen.blocks) work += blocks[static_cast<std::size_t>(b)].work;
        EXPECT_EQ(work, least);
        EXPECT_GE(chosen.freed, excess);
        ++fitted;
    }
    EXPECT_GT(fitted, 200);
}

// The cheapest bytes first would take block 0, at 1.0 for 10 bytes, and then block 1 for the last of 12: 4 of work.
TEST(LeastRecomputation, IsNotMisledByTheCheapestBytes) {
    const std::vector<RecomputableBlock> blocks = {{.block = 0, .work = 1, .freed = 10},
                                                   {.block = 1, .work = 3, .freed = 15}};
    EXPECT_EQ(least_recomputation(blocks, 12).blocks, std::vector{1});
    EXPECT_EQ(least_recomputation(blocks, 10).blocks, std::vector{0});
    EXPECT_EQ(least_recomputation(blocks, 16).blocks, (std::vector{0, 1}));
}

TEST(LeastRecomputation, IsNothingWhereEverythingFits) {
    const std::vector<RecomputableBlock> blocks = {{.work = 0, .freed = 10}};
    const RecomputeChoice chosen = least_recomputation(blocks, 0);
    EXPECT_TRUE(chosen.blocks.empty());
    EXPECT_TRUE(chosen.fits);
}

// Many stages of one rank, each with another number of micro-batches in flight: too many sets to try, and no two groups
// of equal blocks. The bound is that of parts of blocks.
TEST(LeastRecomputation, OfManyDifferentBlocksIsWithinOneOfTheBound) {
    std::vector<RecomputableBlock> blocks;
    for (int stage = 0; stage < 8; ++stage)
        for (int b = 0; b < 12; ++b)
            blocks.push_back({.stage = stage, .block = 12 * stage + b, .work = 1 + 0.001 * b, .freed = 20.0 - stage});
    const double excess = 1000;
    const RecomputeChoice chosen = least_recomputation(blocks, excess);
    ASSERT_TRUE(chosen.fits);
    double work = 0, bound = 0, need = excess; // the blocks of the first stages are the cheapest bytes
    for (const int b : chosen.blocks) work += blocks[static_cast<std::size_t>(b)].work;
    for (const RecomputableBlock& block : blocks) {
        bound += block.work * std::min(1.0, need / block.freed);
        need = std::max(0.0, need - block.freed);
    }
    EXPECT_LE(work, bound + 1.02);
}

TEST(FullRecomputation, LeavesBlocksThatFreeNothing) {
    const std::vector<RecomputableBlock> blocks = {{.freed = 3}, {.freed = 0}, {.freed = -1}, {.freed = 1}};
    EXPECT_EQ(full_recomputation(blocks).blocks, (std::vector{0, 3}));
}

TEST(RecomputedShare, IsThePartOfTheBytesThatIsNeeded) {
    EXPECT_EQ(recomputed_share(25, 100), 0.25);
    EXPECT_EQ(recomputed_share(-5, 100), 0);
    EXPECT_EQ(recomputed_share(200, 100), 1);
    EXPECT_EQ(recomputed_share(1, 0), 1); // there is nothing to be had
}

} // namespace
} // namespace tutti::test

// Where chains of blocks are cut into stages: against every cut of short ones.
#include "planner/stages/cuts.h"

#include "models/model.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace tutti::test {

using namespace planner;
namespace {

std::vector<Block> blocks_of(const std::vector<double>& flops) {
    std::vector<Block> blocks(flops.size());
    for (std::size_t b = 0; b < flops.size(); ++b) blocks[b].forward.flops = {flops[b]};
    return blocks;
}

TEST(Balance, IsWhatTryingAllCutsGives) {
    std::mt19937 random(3);
    auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
    for (int round = 0; round < 200; ++round) {
        const int count = number(1, 9), stages = number(1, count);
        std::vector<double> flops;
        for (int b = 0; b < count; ++b) flops.push_back(number(0, 3) == 0 ? 1e-3 * number(0, 9) : number(1, 30) / 7.0);
        auto judge = [&](const std::vector<int>& cuts) { // the slowest stage, and how uneven they are
            std::vector<double> times(cuts.size() + 1, 0);
            for (int b = 0; b < count; ++b)
                times[static_cast<std::size_t>(std::ranges::upper_bound(cuts, b) - cuts.begin())] +=
                    flops[static_cast<std::size_t>(b)];
            double squares = 0;
            for (double time : times) squares += time * time;
            return std::pair(*std::ranges::max_element(times), squares);
        };
        std::pair<double, double> best{std::numeric_limits<double>::infinity(), 0};
        for (int set = 0; set < 1 << (count - 1); ++set) {
            std::vector<int> cuts;
            for (int b = 1; b < count; ++b)
                if (set >> (b - 1) & 1) cuts.push_back(b);
            if (static_cast<int>(cuts.size()) != stages - 1) continue;
            const auto [slowest, squares] = judge(cuts);
            if (slowest < best.first * (1 - 1e-9) || (slowest < best.first * (1 + 1e-9) && squares < best.second))
                best = {slowest, squares};
        }
        const std::vector<int> cuts = balance(blocks_of(flops), stages);
        ASSERT_EQ(static_cast<int>(cuts.size()), stages - 1);
        EXPECT_TRUE(std::ranges::is_sorted(cuts));
        const auto [slowest, squares] = judge(cuts);
        EXPECT_NEAR(slowest, best.first, 1e-9 * best.first);
        EXPECT_NEAR(squares, best.second, 1e-9 * best.second);
    }
}

TEST(Balance, OfEqualBlocksGivesEarlierStagesNoMore) {
    EXPECT_EQ(balance(blocks_of(std::vector<double>(10, 1.0)), 4), (std::vector<int>{2, 4, 7}));
    EXPECT_EQ(balance(blocks_of({0.1, 1, 1, 1, 1, 1, 1, 2}), 3), (std::vector<int>{3, 6}));
}

TEST(Balance, SaysHowManyBlocksThereAreWhereTheyAreTooFew) {
    const std::vector<Block> blocks = blocks_of({1, 1, 1, 1});
    EXPECT_EQ(error_of([&] { balance(blocks, 5); }), "the model has 4 blocks, too few for 5 stages");
}

// The head of a large vocabulary weighs more than a layer.
TEST(Balance, GivesTheStageWithTheHeadFewerLayers) {
    const models::Model model = models::open_model("gpt2").build({1, 64, DType::float32});
    const std::vector<Block> blocks = find_blocks(model.graph);
    ASSERT_EQ(blocks.size(), 26u);
    const std::vector<int> cuts = balance(blocks, 4);
    EXPECT_GT(cuts[0], 26 - cuts[2]);
}

// Every cut of so many blocks into so many stages, by sets of their borders.
std::vector<Cuts> every_cut(int blocks, int stages) {
    std::vector<Cuts> all;
    for (int set = 0; set < 1 << (blocks - 1); ++set) {
        Cuts cuts;
        for (int b = 1; b < blocks; ++b)
            if (set >> (b - 1) & 1) cuts.push_back(b);
        if (static_cast<int>(cuts.size()) == stages - 1) all.push_back(std::move(cuts));
    }
    return all;
}

// Blocks that take so long, on devices of these speeds, and bytes that have to fit each device's memory.
struct Pipeline {
    std::vector<double> seconds{}, bytes{}; // per block
    std::vector<double> speeds{}, memory{}; // per stage

    int blocks() const { return static_cast<int>(seconds.size()); }
    int stages() const { return static_cast<int>(speeds.size()); }

    double time(int stage, int first, int end) const {
        return std::accumulate(seconds.begin() + first, seconds.begin() + end, 0.0) /
               speeds[static_cast<std::size_t>(stage)];
    }
    bool fits(int stage, int first, int end) const {
        return std::accumulate(bytes.begin() + first, bytes.begin() + end, 0.0) <=
               memory[static_cast<std::size_t>(stage)];
    }
    StageHolds holds() const {
        return [this](int stage, int first, int end, double most) {
            return fits(stage, first, end) && time(stage, first, end) <= most;
        };
    }
    // Of the slowest stage; infinity where some stage does not fit.
    double bottleneck(const Cuts& cuts) const {
        double slowest = 0;
        for (int stage = 0; stage < stages(); ++stage) {
            const auto s = static_cast<std::size_t>(stage);
            const int first = stage == 0 ? 0 : cuts[s - 1], end = stage + 1 == stages() ? blocks() : cuts[s];
            if (!fits(stage, first, end)) return std::numeric_limits<double>::infinity();
            slowest = std::max(slowest, time(stage, first, end));
        }
        return slowest;
    }
};

// Of equally fast stages: there, a stage that is as long as can be is never wrong.
TEST(BalancedCuts, HaveTheLeastBottleneckOfAllCutsThatFit) {
    std::mt19937 random(7);
    auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
    int fitted = 0, refused = 0;
    for (int round = 0; round < 300; ++round) {
        Pipeline pipeline;
        for (int b = 0, count = number(2, 9); b < count; ++b) {
            pipeline.seconds.push_back(number(1, 20) / 4.0);
            pipeline.bytes.push_back(number(1, 5));
        }
        const auto stages_drawn = static_cast<std::size_t>(number(2, std::min(5, pipeline.blocks())));
        pipeline.speeds.assign(stages_drawn, number(1, 3));
        pipeline.memory.assign(stages_drawn, number(4, 12));
        const int blocks = pipeline.blocks(), stages = pipeline.stages();
        double least = std::numeric_limits<double>::infinity();
        for (const Cuts& cuts : every_cut(blocks, stages)) least = std::min(least, pipeline.bottleneck(cuts));
        const std::vector<Cuts> found = balanced_cuts(blocks, stages, pipeline.holds(), 1000, 1e-9);
        ASSERT_EQ(found.empty(), std::isinf(least));
        for (const Cuts& cuts : found) EXPECT_LE(pipeline.bottleneck(cuts), least * (1 + 1e-8));
        fitted += found.empty() ? 0 : 1;
        refused += found.empty() ? 1 : 0;
    }
    EXPECT_GT(fitted, 100);
    EXPECT_GT(refused, 5);
}

TEST(FillForward, TakesAsManyBlocksAsAStageHoldsAndLeavesOneForEveryOther) {
    const Pipeline equal{{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}, {9, 9, 9}};
    EXPECT_EQ(fill_forward(6, 3, equal.holds(), 3), (Cuts{3, 5}));  // three, then two: the last has one at least
    EXPECT_EQ(fill_backward(6, 3, equal.holds(), 3), (Cuts{1, 3})); // the same from behind
    EXPECT_EQ(fill_forward(6, 3, equal.holds(), 1.5), std::nullopt);
    EXPECT_EQ(fill_backward(6, 3, equal.holds(), 1.5), std::nullopt);
    EXPECT_EQ(least_bottleneck(6, 3, equal.holds(), 6), 2);
    EXPECT_EQ(least_bottleneck(6, 3, equal.holds(), 1), std::nullopt);
}

// A first stage with room for one block alone: the others take what it cannot hold.
TEST(BalancedCuts, PassOnWhatMemoryDoesNotHold) {
    const Pipeline small{{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {1, 1, 1}, {1, 9, 9}};
    EXPECT_EQ(least_bottleneck(5, 3, small.holds(), 9), 2);
    EXPECT_EQ(balanced_cuts(5, 3, small.holds(), 9, 0), (std::vector<Cuts>{{1, 3}}));
}

TEST(BalancedCuts, OfOneStageAreNone) {
    const Pipeline one{{1, 1}, {1, 1}, {1}, {9}};
    EXPECT_EQ(balanced_cuts(2, 1, one.holds(), 9, 0), (std::vector<Cuts>{{}}));
    EXPECT_TRUE(balanced_cuts(2, 3, one.holds(), 9, 0).empty());
}

TEST(AllCuts, AreThoseOfEverySetOfBorders) {
    for (int blocks = 1; blocks <= 8; ++blocks)
        for (int stages = 1; stages <= blocks; ++stages) {
            const std::vector<Cuts> all = all_cuts(blocks, stages, 1000), expected = every_cut(blocks, stages);
            EXPECT_EQ(std::set(all.begin(), all.end()), std::set(expected.begin(), expected.end()));
            EXPECT_EQ(all.size(), expected.size());
        }
    EXPECT_EQ(all_cuts(9, 4, 56).size(), 56u); // 8 over 3
    EXPECT_TRUE(all_cuts(9, 4, 55).empty());
    EXPECT_TRUE(all_cuts(3, 4, 1000).empty());
}

TEST(EvenCuts, GiveStagesThatDifferByABlockAtMost) {
    for (int blocks = 1; blocks <= 20; ++blocks)
        for (int stages = 1; stages <= blocks; ++stages) {
            Cuts ends = even_cuts(blocks, stages);
            ends.push_back(blocks);
            int first = 0;
            for (const int end : ends) {
                EXPECT_GE(end - first, blocks / stages);
                EXPECT_LE(end - first, (blocks + stages - 1) / stages);
                first = end;
            }
        }
}

} // namespace
} // namespace tutti::test

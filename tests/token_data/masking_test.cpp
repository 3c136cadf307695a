#include "data/masking.h"

#include "data/token_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti {

using namespace data;
namespace {

using Tokens = std::vector<std::int64_t>;
constexpr Masking masking{.mask_token = 103, .vocabulary = 1000, .seed = 4};

TEST(Masking, FifteenPercentAreChosenAndEightyOfThoseHidden) {
    constexpr std::int64_t token = 500;
    double chosen = 0, hidden = 0, kept = 0, replaced = 0, total = 0;
    for (std::int64_t counter = 0; counter < 2000; ++counter) {
        Tokens input(128, token), targets(128);
        mask_tokens(masking, counter, input, targets);
        for (std::size_t i = 0; i < input.size(); ++i) {
            ++total;
            if (targets[i] == ignored_target) {
                ASSERT_EQ(input[i], token);
                continue;
            }
            ASSERT_EQ(targets[i], token);
            ASSERT_TRUE(input[i] >= 0 && input[i] < masking.vocabulary);
            ++chosen;
            ++(input[i] == masking.mask_token ? hidden : input[i] == token ? kept : replaced);
        }
    }
    EXPECT_NEAR(chosen / total, 0.15, 0.003);
    EXPECT_NEAR(hidden / chosen, 0.8, 0.01);
    EXPECT_NEAR(kept / chosen, 0.1, 0.01);
    EXPECT_NEAR(replaced / chosen, 0.1, 0.01);
}

TEST(Masking, DependsOnSeedAndCounterAlone) {
    const auto masked = [](const Masking& how, std::int64_t counter) {
        Tokens input(64, 7), targets(64);
        mask_tokens(how, counter, input, targets);
        return targets;
    };
    Masking other = masking;
    other.seed = 5;
    EXPECT_EQ(masked(masking, 3), masked(masking, 3));
    EXPECT_NE(masked(masking, 3), masked(masking, 4));
    EXPECT_NE(masked(masking, 3), masked(other, 3));
}

TEST(Masking, ShortSamplesStillHaveSomethingToPredict) {
    for (std::int64_t counter = 0; counter < 1000; ++counter) {
        Tokens input = {11, 12, 13}, targets(3);
        mask_tokens(masking, counter, input, targets);
        EXPECT_LT(std::count(targets.begin(), targets.end(), ignored_target), 3);
        for (std::size_t i = 0; i < 3; ++i)
            EXPECT_TRUE(targets[i] == ignored_target || targets[i] == static_cast<std::int64_t>(11 + i));
    }
}

} // namespace
} // namespace tutti

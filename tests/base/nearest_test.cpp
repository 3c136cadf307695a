#include "base/nearest.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Nearest, FindsTypingMistakesAndNothingElse) {
    EXPECT_EQ(edit_distance("steps", "steps"), 0u);
    EXPECT_EQ(edit_distance("tsep", "step"), 1u);
    EXPECT_EQ(edit_distance("setps", "steps"), 1u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    const std::vector<std::string> known = {"steps", "seed", "lr"};
    EXPECT_EQ(nearest("stpes", known), "steps");
    EXPECT_EQ(nearest("elephant", known), std::nullopt);
    EXPECT_EQ(nearest("x", known), std::nullopt);
}

} // namespace
} // namespace tutti

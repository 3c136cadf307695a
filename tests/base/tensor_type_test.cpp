#include "base/tensor_type.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(TensorType, DenseIgnoresStridesOfSingleElements) {
    EXPECT_TRUE(is_dense({3, 1, 5}, {5, 77, 1}));
    EXPECT_TRUE(is_dense({}, {}));
    EXPECT_FALSE(is_dense({3, 5}, {6, 1}));
    EXPECT_FALSE(is_dense({3, 5}, {1, 3}));
}

TEST(TensorType, MatricesAreRowOrColumnMajorWithRoomBetween) {
    EXPECT_TRUE(is_matrix({3, 5}, {5, 1}));
    EXPECT_TRUE(is_matrix({3, 5}, {8, 1}));         // a slice of columns
    EXPECT_TRUE(is_matrix({3, 5}, {1, 3}));         // transposed
    EXPECT_TRUE(is_matrix({3, 5}, {1, 9}));         // a slice of a transposed matrix
    EXPECT_TRUE(is_matrix({2, 3, 5}, {24, 8, 1}));  // leading dimensions collapse
    EXPECT_TRUE(is_matrix({2, 3, 5}, {3, 1, 6}));   // and column-major too
    EXPECT_TRUE(is_matrix({1, 3, 5}, {999, 5, 1})); // single elements do not count
    EXPECT_TRUE(is_matrix({5}, {1}));
    EXPECT_FALSE(is_matrix({2, 3, 5}, {5, 10, 1})); // permuted: no single stride between rows
    EXPECT_FALSE(is_matrix({3, 5}, {0, 1}));        // expanded rows
    EXPECT_FALSE(is_matrix({3, 5}, {10, 2}));       // nothing is contiguous
    EXPECT_FALSE(is_matrix({3, 5}, {1, 2}));        // columns overlap
    EXPECT_FALSE(is_matrix({5}, {2}));
}

TEST(TensorType, UnitRowsNeedOnlyTheLastDimension) {
    EXPECT_TRUE(has_unit_rows({2, 3, 5}, {5, 10, 1}));
    EXPECT_TRUE(has_unit_rows({2, 1}, {1, 7}));
    EXPECT_FALSE(has_unit_rows({3, 5}, {1, 3}));
}

} // namespace
} // namespace tutti

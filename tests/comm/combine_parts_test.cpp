#include "comm/combine_parts.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tutti {

using namespace comm;
namespace {

template <class T>
std::vector<T> combined(std::vector<std::vector<T>> parts, DType dtype, Combine combine) {
    std::vector<const std::byte*> pointers;
    for (const auto& part : parts) pointers.push_back(reinterpret_cast<const std::byte*>(part.data()));
    std::vector<T> result(parts[0].size());
    combine_parts(pointers, reinterpret_cast<std::byte*>(result.data()),
                  static_cast<std::int64_t>(result.size() * sizeof(T)), dtype, combine);
    return result;
}

TEST(CombineParts, AddsInRankOrder) { // the other order gives 0
    EXPECT_EQ(combined<float>({{1e8f}, {-1e8f}, {1.0f}}, DType::float32, Combine::sum)[0], 1.0f);
    EXPECT_EQ(combined<float>({{1e8f}, {1.0f}, {-1e8f}}, DType::float32, Combine::sum)[0], 0.0f);
}

TEST(CombineParts, RoundsSixteenBitsOnce) {
    // 1 + 1/256 + 1/256: rounded after each step it would stay 1.
    const auto sum =
        combined<BFloat16>({{BFloat16(1.0f)}, {BFloat16(0x1p-8f)}, {BFloat16(0x1p-8f)}}, DType::bfloat16, Combine::sum);
    EXPECT_EQ(static_cast<float>(sum[0]), 1.0f + 0x1p-7f);
}

TEST(CombineParts, KeepsNotANumberInAMaximum) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto result = combined<float>({{nan, 1, 3}, {2, nan, -4}}, DType::float32, Combine::maximum);
    EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1]));
    EXPECT_EQ(result[2], 3);
}

TEST(CombineParts, JoinsBooleansByOr) {
    using Values = std::vector<std::uint8_t>;
    EXPECT_EQ(combined<std::uint8_t>({{0, 1, 0, 1}, {0, 0, 1, 1}}, DType::boolean, Combine::sum), (Values{0, 1, 1, 1}));
}

TEST(CombineParts, WrapsIntegers) {
    const auto largest = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(combined<std::int64_t>({{largest}, {1}}, DType::int64, Combine::sum)[0],
              std::numeric_limits<std::int64_t>::min());
}

} // namespace
} // namespace tutti

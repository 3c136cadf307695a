// The oracle itself: element types and layouts must not matter to it.
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"

#include <gtest/gtest.h>

namespace tutti::testing {

using namespace backend::reference;
namespace {

void expect_none(const std::vector<std::string>& differences) {
    for (const std::string& difference : differences) ADD_FAILURE() << difference;
}

TEST(Reference, LayoutsAccumulationAndBuffersInPlaceDoNotChangeResults) {
    const auto device = make_reference_device();
    expect_none(compare_devices(*device, *device, DType::float64, {1e-13, 1e-13}));
}

TEST(Reference, Float32IsFloat64Rounded) {
    const auto device = make_reference_device();
    expect_none(compare_devices(*device, *device, DType::float32, {1e-6, 1e-6}));
}

TEST(Reference, SixteenBitFloatsAreFloat64Rounded) {
    const auto device = make_reference_device();
    expect_none(compare_devices(*device, *device, DType::bfloat16, {0.005, 1e-6}));
    expect_none(compare_devices(*device, *device, DType::float16, {0.001, 1e-6}));
}

// The comparison itself: one rounding too many must not pass unseen.
TEST(CompareDevices, SeesRoundingWhereNoneIsTolerated) {
    const auto device = make_reference_device();
    EXPECT_GT(compare_devices(*device, *device, DType::float32, {0, 0}).size(), 100u);
    EXPECT_TRUE(compare_devices(*device, *device, DType::float64, {1e-13, 1e-13}).empty());
}

TEST(Reference, ArenasAreZeroAndAligned) {
    const auto device = make_reference_device();
    const auto arena = device->allocate({100});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % 64, 0u);
    EXPECT_EQ(arena->size(), Bytes{100});
    for (int i = 0; i < 100; ++i) EXPECT_EQ(arena->data()[i], std::byte{0});
}

TEST(Reference, AnUnknownOperatorIsNamed) {
    const auto device = make_reference_device();
    try {
        device->prepare({"frobnicate", {}, {{{DType::float32, {3}}, {1}}}, {}, false, {}});
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "the reference backend has no kernel for frobnicate(float32[3]) -> ");
    }
}

} // namespace
} // namespace tutti::testing

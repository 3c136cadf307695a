#include "profiling/kernel_speed.h"

#include "backend/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {

using namespace backend;
using namespace backend::reference;
using namespace profiling;
namespace {

TEST(KernelSpeed, IsMeasuredInEveryType) {
    const auto device = make_reference_device();
    for (const DType dtype : {DType::float32, DType::float64}) {
        const KernelSpeed speed = measure_kernels(*device, dtype);
        EXPECT_GT(speed.flops, 0);
        EXPECT_GT(speed.bytes, 0);
        EXPECT_GT(speed.launch, 0);
        EXPECT_TRUE(std::isfinite(speed.flops + speed.bytes + speed.launch));
    }
}

} // namespace
} // namespace tutti

// The CPU backend against the oracle, and that no operator is missing from it.
#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"

#include <gtest/gtest.h>

namespace tutti::testing {
namespace {

class Cpu : public ::testing::TestWithParam<int> {
  protected:
    void expect_close(DType dtype, Tolerances tolerances, const std::vector<Case>& cases = operator_cases(),
                      std::span<const Look> looks = all_looks) {
        const auto cpu = make_cpu_device(GetParam());
        const auto reference = make_reference_device();
        for (const std::string& difference : compare_devices(*cpu, *reference, dtype, tolerances, cases, looks))
            ADD_FAILURE() << difference;
    }
};

TEST_P(Cpu, AgreesWithTheReferenceInFloat32) { expect_close(DType::float32, {2e-6, 2e-6}); }

TEST_P(Cpu, AgreesWithTheReferenceInBf16) { expect_close(DType::bfloat16, {1e-2, 1e-3}); }

constexpr Look dense_only[] = {Look::dense};

TEST_P(Cpu, AgreesAtTheWidthsOfModels) { expect_close(DType::float32, {4e-6, 4e-6}, large_cases(), dense_only); }

TEST(CpuCoverage, EveryOperatorButViewsHasAKernel) {
    const auto cpu = make_cpu_device(1);
    for (DType dtype : {DType::float32, DType::bfloat16}) {
        const std::vector<std::string> missing = missing_kernels(*cpu, dtype);
        EXPECT_TRUE(missing.empty()) << fmt::format("{}: {}", name_of(dtype), fmt::join(missing, ", "));
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, Cpu, ::testing::Values(1, 2));

} // namespace
} // namespace tutti::testing

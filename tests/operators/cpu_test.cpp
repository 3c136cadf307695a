// The CPU backend against the oracle, and that no operator is missing from it.
#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"

#include <gtest/gtest.h>

namespace tutti::testing {

using namespace backend::cpu;
using namespace backend::reference;
namespace {

void expect_close(int threads, DType dtype, Tolerances tolerances, const std::vector<Case>& cases = operator_cases(),
                  std::span<const Look> looks = all_looks) {
    const auto cpu = make_cpu_device(threads);
    const auto reference = make_reference_device();
    for (const std::string& difference : compare_devices(*cpu, *reference, dtype, tolerances, cases, looks))
        ADD_FAILURE() << difference;
}

class Cpu : public ::testing::TestWithParam<int> {};

TEST_P(Cpu, AgreesWithTheReferenceInFloat32) { expect_close(GetParam(), DType::float32, {2e-6, 2e-6}); }

TEST_P(Cpu, AgreesWithTheReferenceInBf16) { expect_close(GetParam(), DType::bfloat16, {1e-2, 1e-3}); }

TEST(LargeCpu, AgreesAtTheWidthsOfModels) {
    constexpr Look dense_only[] = {Look::dense};
    expect_close(2, DType::float32, {4e-6, 4e-6}, large_cases(), dense_only);
}

// Both draw the same bits: all but what lies within a float's rounding of a boundary comes out the same.
TEST(CpuUpdate, RoundsStochasticallyAsTheReferenceDoes) {
    const auto cpu = make_cpu_device(1);
    const auto reference = make_reference_device();
    for (const Case& one : operator_cases()) {
        if (!one.name.starts_with("adamw/narrow")) continue;
        SCOPED_TRACE(one.name);
        const std::vector<HostTensor> inputs = *make_inputs(one, DType::bfloat16);
        std::vector<HostTensor> found = make_outputs(one, DType::bfloat16, inputs), expected = found;
        run_operator(*cpu, one, DType::bfloat16, inputs, found);
        run_operator(*reference, one, DType::bfloat16, inputs, expected);
        int differ = 0;
        for (std::size_t o = 0; o < found.size(); ++o)
            if (found[o].type.dtype == DType::bfloat16)
                for (std::size_t i = 0; i < found[o].storage.size(); ++i)
                    differ += found[o].storage[i] != expected[o].storage[i];
        EXPECT_LE(differ, 1);
    }
}

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

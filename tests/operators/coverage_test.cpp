// No operator escapes: each has cases, and a kernel in the reference backend.
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::testing {

using namespace backend::reference;
using namespace ops;
namespace {

TEST(Coverage, EveryOperatorHasACase) {
    std::set<std::string> missing;
    for (const Operator& op : all_operators().all()) missing.insert(std::string(op.name));
    for (const Case& one : operator_cases()) missing.erase(one.op());
    EXPECT_TRUE(missing.empty()) << fmt::format("without a case: {}", fmt::join(missing, ", "));
}

TEST(Coverage, CaseNamesAreUnique) {
    std::set<std::string> names;
    for (const Case& one : operator_cases()) EXPECT_TRUE(names.insert(one.name).second) << one.name;
}

TEST(Coverage, EveryOperatorButViewsHasAReferenceKernel) {
    const auto device = make_reference_device();
    for (DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16}) {
        const std::vector<std::string> missing = missing_kernels(*device, dtype);
        EXPECT_TRUE(missing.empty()) << fmt::format("{}: {}", name_of(dtype), fmt::join(missing, ", "));
    }
}

// A kernel nobody can ask for would be a name misspelt.
TEST(Coverage, ViewsHaveNoKernel) {
    const auto device = make_reference_device();
    for (const Operator& op : all_operators().all()) {
        if (!op.view) continue;
        EXPECT_THROW(device->prepare({std::string(op.name), {}, {}, {}, false, {}}), Error) << op.name;
    }
}

} // namespace
} // namespace tutti::testing

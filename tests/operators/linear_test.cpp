// Linear operators are: of a sum they give the sum of what they give of its terms. Sharding relies on it to pass
// partial sums through.
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::testing {

using namespace backend::reference;
using namespace ops;
namespace {

// The sets of inputs of which a sum passes through.
std::vector<std::set<std::size_t>> linear_inputs(const Operator& op, std::size_t inputs) {
    std::set<std::size_t> all;
    for (std::size_t i = 0; i < inputs; ++i) all.insert(i);
    switch (op.linear) {
    case Linear::none: return {};
    case Linear::first: return {{0}};
    case Linear::either: return {{0}, {1}};
    case Linear::joint: return {all};
    }
    return {};
}

std::vector<HostTensor> with_values(std::vector<HostTensor> tensors, const std::set<std::size_t>& which,
                                    double (*value)(double, std::size_t)) {
    for (std::size_t i : which)
        for (std::size_t k = 0; k < tensors[i].storage.size(); ++k)
            tensors[i].storage[k] = value(tensors[i].storage[k], k);
    return tensors;
}

TEST(Linear, OperatorsPassSumsThrough) {
    const auto device = make_reference_device();
    std::set<std::string> linear, tested;
    for (const Operator& op : all_operators().all())
        if (op.linear != Linear::none) linear.insert(std::string(op.name));
    for (const Case& one : operator_cases()) {
        const Operator& op = all_operators().at(one.op());
        if (op.linear == Linear::none) continue;
        const std::vector<HostTensor> inputs = *make_inputs(one, DType::float64);
        if (!is_floating(inputs[0].type.dtype)) continue; // terms of integers below would not be
        const Attributes attributes = attributes_of(one, DType::float64);
        const std::vector<HostTensor> whole = evaluate(*device, op, attributes, inputs);
        for (const std::set<std::size_t>& which : linear_inputs(op, inputs.size())) {
            SCOPED_TRACE(fmt::format("{}, inputs from {}", one.name, *which.begin()));
            // x = (0.3 x + k) + (0.7 x - k)
            const auto first =
                evaluate(*device, op, attributes, with_values(inputs, which, [](double x, std::size_t k) {
                    return 0.3 * x + static_cast<double>(k % 7);
                }));
            const auto second =
                evaluate(*device, op, attributes, with_values(inputs, which, [](double x, std::size_t k) {
                    return 0.7 * x - static_cast<double>(k % 7);
                }));
            for (std::size_t o = 0; o < whole.size(); ++o) {
                std::vector<double> sum = first[o].values();
                const std::vector<double> more = second[o].values();
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
                EXPECT_EQ(difference("output", sum, whole[o].values(), 1e-11), "");
            }
            tested.insert(one.op());
        }
    }
    EXPECT_EQ(linear, tested) << "every linear operator has a case of floating inputs";
}

} // namespace
} // namespace tutti::testing

// Forward formulas against numbers known from elsewhere: what neither finite differences nor parts of a whole can tell.
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::testing {

using namespace backend::reference;
using namespace ops;
namespace {

HostTensor tensor(Shape shape, std::vector<double> values) {
    return dense_tensor({DType::float64, shape}, std::move(values));
}
HostTensor integers(Shape shape, std::vector<double> values) {
    return dense_tensor({DType::int64, shape}, std::move(values));
}

// Output 0 unless said.
std::vector<double> result(const std::string& op, const std::vector<HostTensor>& inputs,
                           const Attributes& attributes = {}, std::size_t output = 0) {
    const auto device = make_reference_device();
    return evaluate(*device, all_operators().at(op), attributes, inputs)[output].values();
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9) << "element " << i;
}

TEST(Values, OfActivationsAreTheTextbooks) {
    const HostTensor x = tensor({3}, {-2, 0, 1});
    expect_near(result("gelu", {x}), {-0.04550026389635842, 0, 0.8413447460685429});
    expect_near(result("gelu", {x}, {{"tanh", true}}), {-0.04540230591222494, 0, 0.8411919906082768});
    expect_near(result("silu", {x}), {-0.2384058440442351, 0, 0.7310585786300049});
    expect_near(result("relu", {x}), {0, 0, 1});
    expect_near(result("softmax", {x}), {0.03511902695933972, 0.2594964603424191, 0.7053845126982412});
}

TEST(Values, OfNormsHaveMeanZeroOrSquareOne) {
    const HostTensor x = tensor({4}, {1, 2, 3, 6});
    const double rstd = 1 / std::sqrt(3.5 + 0.5); // variance 3.5, biased
    expect_near(result("layer_norm", {x, tensor({4}, {1, 1, 2, 1}), tensor({4}, {0, 0, 1, 0})}, {{"eps", 0.5}}),
                {-1, -0.5, 1, 1.5});
    expect_near(result("layer_norm", {x}, {{"eps", 0.5}}, 1), {3});
    expect_near(result("layer_norm", {x}, {{"eps", 0.5}}, 2), {rstd});
    // mean square 12.5
    expect_near(result("rms_norm", {x, tensor({4}, {1, 2, 1, 0})}, {{"eps", 3.5}}), {0.25, 1, 0.75, 0});
    expect_near(result("rms_norm", {x, tensor({4}, {1, 2, 1, 0})}, {{"eps", 3.5}, {"unit_offset", true}}),
                {0.5, 1.5, 1.5, 1.5});
}

// With equal scores, a query's output is the mean of the values it sees: 1, 2, 4.
TEST(Values, OfCausalAttentionEndAtTheDiagonalOfTheLastQuery) {
    auto attend = [](std::int64_t t, std::size_t output = 0) {
        return result("attention",
                      {tensor({1, t, 1, 2}, {}), tensor({1, 3, 1, 2}, {}), tensor({1, 3, 1, 1}, {1, 2, 4})},
                      {{"causal", true}, {"scale", 1.0}}, output);
    };
    expect_near(attend(3), {1, 1.5, 7.0 / 3});
    expect_near(attend(2), {1.5, 7.0 / 3});
    expect_near(attend(2, 1), {std::log(2), std::log(3)});
    EXPECT_EQ(attend(4)[0], 0); // sees no key
    EXPECT_EQ(attend(4, 1)[0], -std::numeric_limits<double>::infinity());
}

TEST(Values, OfGroupedAttentionShareNeighbouringHeads) {
    const std::vector<double> out =
        result("attention", {tensor({1, 1, 4, 1}, {}), tensor({1, 1, 2, 1}, {}), tensor({1, 1, 2, 1}, {10, 20})},
               {{"causal", false}, {"scale", 1.0}});
    expect_near(out, {10, 10, 20, 20});
}

TEST(Values, OfAttentionAreWeightedByTheSoftmaxOfScaledScoresAndMask) {
    const std::vector<HostTensor> inputs = {tensor({1, 1, 1, 2}, {1, 2}), tensor({1, 2, 1, 2}, {1, 0, 0, 1}),
                                            tensor({1, 2, 1, 1}, {0, 1}), tensor({1, 1, 1, 2}, {0.25, 0})};
    expect_near(result("attention", inputs, {{"causal", false}, {"scale", 0.5}}),
                {1 / (1 + std::exp(0.75 - 1))}); // scores 0.5 + 0.25 and 1
}

// A quarter turn takes (x, y) to (-y, x); element i pairs with i + p, and what is beyond 2p stays.
TEST(Values, OfRotaryTurnAnticlockwise) {
    const std::vector<HostTensor> inputs = {tensor({1, 1, 1, 5}, {1, 2, 3, 4, 5}), tensor({1, 2}, {0, 1}),
                                            tensor({1, 2}, {1, 0})};
    expect_near(result("rotary", inputs), {-3, 2, 1, 4, 5});
    expect_near(result("rotary", inputs, {{"inverse", true}}), {3, 2, -1, 4, 5});
}

TEST(Values, OfRotaryTablesAreScaledCosinesAndSines) {
    const Attributes attributes = {{"positions", std::int64_t{2}},
                                   {"start", std::int64_t{1}},
                                   {"frequencies", std::vector<double>{1, 0.5}},
                                   {"scale", 2.0},
                                   {"dtype", std::string("float64")}};
    expect_near(result("rotary_table", {}, attributes),
                {2 * std::cos(1), 2 * std::cos(0.5), 2 * std::cos(2), 2 * std::cos(1)});
    expect_near(result("rotary_table", {}, attributes, 1),
                {2 * std::sin(1), 2 * std::sin(0.5), 2 * std::sin(2), 2 * std::sin(1)});
}

TEST(Values, OfCrossEntropyAreSummedOverTheTargetsThatCount) {
    const HostTensor logits = tensor({3, 2}, {0, 0, 1000, 0, 0, std::log(3)});
    expect_near(result("cross_entropy", {logits, integers({3}, {0, -100, 1})}), {std::log(2) + std::log(4.0 / 3)});
    expect_near(result("cross_entropy", {logits, integers({3}, {0, 0, 1})}), {std::log(2) + std::log(4.0 / 3)});
    expect_near(result("cross_entropy", {logits, integers({3}, {0, -100, 1})}, {}, 1),
                {std::log(2), 1000, std::log(4)});
}

TEST(Values, OfEmbeddingsOutsideTheTableAreZero) {
    expect_near(result("embedding", {tensor({2, 2}, {1, 2, 3, 4}), integers({4}, {6, 4, 5, 7})},
                       {{"first_row", std::int64_t{5}}}),
                {3, 4, 0, 0, 1, 2, 0, 0});
}

TEST(Values, OfCumulativeSumsRunAlongTheirDimension) {
    const HostTensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
    expect_near(result("cumsum", {x}, {{"dim", std::int64_t{1}}}), {1, 3, 6, 4, 9, 15});
    expect_near(result("cumsum", {x}, {{"dim", std::int64_t{0}}, {"reverse", true}}), {5, 7, 9, 4, 5, 6});
}

TEST(Values, ThatAreNotNumbersGoThrough) {
    const HostTensor x = tensor({2}, {std::nan(""), 1});
    for (const char* op : {"relu", "gelu", "silu", "softmax"}) EXPECT_TRUE(std::isnan(result(op, {x})[0])) << op;
    EXPECT_TRUE(std::isnan(result("maximum", {x, tensor({}, {0})})[0]));
    EXPECT_TRUE(std::isnan(result("reduce_max", {x}, {{"dims", std::vector<std::int64_t>{0}}})[0]));
}

} // namespace
} // namespace tutti::testing

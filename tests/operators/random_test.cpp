// What is drawn is part of the file format of a run: a resumed run, another backend and another layout must draw the
// same. These masks may never change.
#include "backend/random_stream.h"
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
using namespace ops;
namespace {

// x for elements that were kept, . for those that fell.
std::string mask_of(const std::vector<double>& values) {
    std::string text;
    for (double value : values) text += value != 0 ? 'x' : '.';
    return text;
}

std::string dropout_mask(const Shape& shape, const Attributes& attributes, const StepScalars& given,
                         const std::string& source) {
    const auto device = make_reference_device();
    const TensorType type{DType::float64, shape};
    const std::vector<HostTensor> inputs = {
        dense_tensor(type, std::vector<double>(static_cast<std::size_t>(shape.elements()), 1.0))};
    std::vector<HostTensor> outputs = {dense_tensor(type)};
    StepScalars scalars = given;
    run_kernel(*device, "dropout", attributes, inputs, outputs, scalars, {.source = source});
    return mask_of(outputs[0].values());
}

TEST(Random, NamesHashAsFnv1a) {
    EXPECT_EQ(hash_of(""), 0xcbf29ce484222325ull);
    EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cull);
    EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8ull);
}

TEST(Random, DropoutFallsWhereItAlwaysFell) {
    StepScalars scalars;
    scalars.seed = 1234;
    EXPECT_EQ(dropout_mask({2, 24}, {{"p", 0.5}}, scalars, "h.0.mlp"),
              "....xx..x....xx.xx...x..x...xx...x..xxx..x.xxx..");
    scalars.step = 7;
    scalars.first_sample = 1000;
    EXPECT_EQ(dropout_mask({2, 24}, {{"p", 0.1}}, scalars, "h.11.attention"),
              "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.x.xx.xx.xxxx");
}

TEST(Random, DropoutKeepsItsShare) {
    StepScalars scalars;
    scalars.seed = 99;
    const std::string mask = dropout_mask({40, 50, 50}, {{"p", 0.3}}, scalars, "embedding");
    const auto kept = static_cast<double>(std::ranges::count(mask, 'x')) / static_cast<double>(mask.size());
    EXPECT_NEAR(kept, 0.7, 0.005); // 3.4 standard deviations
}

TEST(Random, SeedStepSampleAndSourceEachChangeTheMask) {
    StepScalars scalars;
    const std::string mask = dropout_mask({1, 64}, {{"p", 0.5}}, scalars, "a");
    auto changed = [&](auto change) {
        StepScalars other;
        change(other);
        return dropout_mask({1, 64}, {{"p", 0.5}}, other, "a") != mask;
    };
    EXPECT_TRUE(changed([](StepScalars& s) { s.seed = 1; }));
    EXPECT_TRUE(changed([](StepScalars& s) { s.step = 1; }));
    EXPECT_TRUE(changed([](StepScalars& s) { s.first_sample = 1; }));
    EXPECT_NE(dropout_mask({1, 64}, {{"p", 0.5}}, scalars, "b"), mask);
}

TEST(Random, AMicroBatchDrawsWhatTheWholeBatchDraws) {
    StepScalars scalars;
    const std::string whole = dropout_mask({4, 3, 7}, {{"p", 0.5}}, scalars, "a");
    scalars.first_sample = 2;
    EXPECT_EQ(dropout_mask({2, 3, 7}, {{"p", 0.5}}, scalars, "a"), whole.substr(42));
    EXPECT_EQ(dropout_mask({1, 3, 7}, {{"p", 0.5}, {"first_sample", std::int64_t{1}}}, scalars, "a"), whole.substr(63));
}

TEST(Random, DropoutOfAPartDrawsWhatTheWholeDraws) {
    const Operator& op = all_operators().at("dropout");
    const TensorType whole{DType::float64, {2, 5, 7}};
    const Attributes attributes = {{"p", 0.5}};
    const std::string mask = dropout_mask(whole.shape, attributes, {}, "a");
    // Columns [3, 7) of rows [1, 3) of the second sample: three parts of parts.
    Attributes part = op.part({&whole, 1}, attributes, "l2", 3, 4);
    const TensorType columns{DType::float64, {2, 5, 4}};
    part = op.part({&columns, 1}, part, "l1", 1, 2);
    const TensorType piece{DType::float64, {2, 2, 4}};
    part = op.part({&piece, 1}, part, "l0", 1, 1);
    EXPECT_EQ(dropout_mask({1, 2, 4}, part, {}, "a"), mask.substr(35 + 7 + 3, 4) + mask.substr(35 + 14 + 3, 4));
}

// With queries of zero and values of one-hot rows, the output of attention is the mask of its probabilities.
TEST(Random, AttentionDropsWhatItAlwaysDropped) {
    const auto device = make_reference_device();
    const std::int64_t t = 4, s = 6;
    const TensorType q{DType::float64, {1, t, 2, 1}}, k{DType::float64, {1, s, 1, 1}}, v{DType::float64, {1, s, 1, s}};
    HostTensor values = dense_tensor(v);
    for (std::int64_t j = 0; j < s; ++j) values.storage[static_cast<std::size_t>(j * s + j)] = 1;
    std::vector<HostTensor> outputs = {dense_tensor({DType::float64, {1, t, 2, s}}),
                                       dense_tensor({DType::float64, {1, 2, t}})};
    StepScalars scalars;
    scalars.seed = 1234;
    const Attributes attributes = {{"causal", false}, {"scale", 1.0}, {"dropout", 0.5}};
    run_kernel(*device, "attention", attributes, {dense_tensor(q), dense_tensor(k), values}, outputs, scalars,
               {.source = "h.0.attention"});
    EXPECT_EQ(mask_of(outputs[0].values()), "xxx....x.x..xxx.x..xx....xx.x.xx.x..xx.x..xxx...");
    for (std::int64_t i = 0; i < t; ++i)
        for (std::int64_t h = 0; h < 2; ++h)
            for (std::int64_t j = 0; j < s; ++j) {
                const bool kept = keeps(key_of(scalars), stream_of("h.0.attention", 0), (h * t + i) * s + j, 0.5);
                EXPECT_DOUBLE_EQ(outputs[0].storage[static_cast<std::size_t>((i * 2 + h) * s + j)], kept ? 1.0 / 3 : 0);
            }
    for (double lse : outputs[1].values()) EXPECT_DOUBLE_EQ(lse, std::log(6.0)); // dropout does not reach it
}

} // namespace
} // namespace tutti::testing

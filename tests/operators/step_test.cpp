// The operators of a step's end, worked out by hand.
#include "backend/random_stream.h"
#include "backend/reference/reference.h"
#include "operators/cuda_device.h"
#include "operators/operator_cases.h"

#include <cmath>
#include <limits>
#include <set>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
namespace {

enum class On { reference, cuda };

// Every test runs on the oracle in float64 and on the GPU in float32.
class StepEnd : public ::testing::TestWithParam<On> {
  protected:
    void SetUp() override {
        if (GetParam() == On::cuda) skip_without_cuda();
    }
    const Device& device() const {
        static const auto reference = make_reference_device();
        return GetParam() == On::cuda ? *cuda_device().device : *reference;
    }
    DType dtype() const { return GetParam() == On::cuda ? DType::float32 : DType::float64; }
    double tolerance() const { return GetParam() == On::cuda ? 1e-6 : 1e-15; }
    void expect_near(double got, double expected) const {
        EXPECT_NEAR(got, expected, tolerance() * std::max(1.0, std::abs(expected)));
    }
};

class AdamW : public StepEnd {
  protected:
    // weights, moments1, moments2 [, master]
    using Chunk = std::vector<HostTensor>;

    Chunk chunk_of(const std::vector<double>& weights) const {
        const TensorType type{dtype(), {static_cast<std::int64_t>(weights.size())}};
        return {dense_tensor(type, weights), dense_tensor(type), dense_tensor(type)};
    }
    void update(Chunk& chunk, StepScalars scalars, const std::vector<double>& gradients,
                std::vector<std::int64_t> ranges) const {
        const TensorType type{dtype(), {static_cast<std::int64_t>(gradients.size())}};
        run_kernel(device(), "adamw", {{"ranges", std::move(ranges)}}, {dense_tensor(type, gradients)}, chunk, scalars);
    }
};

TEST_P(AdamW, TheFirstStepMovesEachWeightByTheLearningRate) {
    Chunk chunk = chunk_of({1, 1, 1});
    StepScalars scalars;
    scalars.learning_rate = 0.01;
    scalars.epsilon = 0;
    update(chunk, scalars, {5, -0.001, 300}, {0, 3, 0});
    const std::vector<double> weights = chunk[0].values();
    expect_near(weights[0], 0.99);
    expect_near(weights[1], 1.01);
    expect_near(weights[2], 0.99);
    expect_near(chunk[1].values()[0], 0.5);   // (1 - 0.9) 5
    expect_near(chunk[2].values()[0], 0.025); // (1 - 0.999) 25
}

TEST_P(AdamW, DecaysOnlyWhatItIsToldToAndTouchesNothingOutsideItsRanges) {
    Chunk chunk = chunk_of({2, 2, 2, 2});
    StepScalars scalars;
    scalars.learning_rate = 0.1;
    scalars.weight_decay = 0.5;
    update(chunk, scalars, {0, 0, 1, 1}, {0, 1, 1, 1, 2, 0});
    expect_near(chunk[0].values()[0], 1.9);
    for (std::size_t i : {1u, 2u, 3u}) EXPECT_EQ(chunk[0].values()[i], 2);
    EXPECT_EQ(chunk[1].values()[3], 0);
}

TEST_P(AdamW, TwoStepsAreTheFormula) {
    Chunk chunk = chunk_of({0.5});
    StepScalars scalars;
    scalars.learning_rate = 0.02;
    scalars.beta1 = 0.8;
    scalars.beta2 = 0.9;
    scalars.clip_factor = 0.5;
    scalars.loss_scale = 4;
    update(chunk, scalars, {8}, {0, 1, 0}); // g = 8 * 0.5 / 4 = 1
    scalars.step = 1;
    update(chunk, scalars, {-16}, {0, 1, 0}); // g = -2
    const double m = 0.8 * 0.2 * 1 + 0.2 * -2, v = 0.9 * 0.1 * 1 + 0.1 * 4;
    const double first = 0.5 - 0.02 * 1 / (1 + 1e-8);
    const double second = first - 0.02 * (m / (1 - 0.64)) / (std::sqrt(v / (1 - 0.81)) + 1e-8);
    expect_near(chunk[0].values()[0], second);
}

TEST_P(AdamW, WeightsAreTheMasterRounded) {
    Chunk chunk = chunk_of({1});
    chunk[0].type.dtype = DType::bfloat16;
    chunk.push_back(dense_tensor({dtype(), {1}}, {1.001}));
    StepScalars scalars;
    scalars.learning_rate = 1e-4;
    update(chunk, scalars, {1}, {0, 1, 0});
    EXPECT_NEAR(chunk[3].values()[0], 1.0009, std::max(tolerance(), 1e-9));
    EXPECT_EQ(chunk[0].values()[0], 1.0);
}

// Steps far below bf16's spacing: rounded to nearest they would all be lost.
TEST_P(AdamW, WeightsWithoutAMasterMoveByTheStepOnAverage) {
    constexpr std::int64_t count = 4000;
    const TensorType narrow{DType::bfloat16, {count}}, wide{DType::float32, {count}};
    std::vector<HostTensor> outputs = {dense_tensor(narrow, std::vector<double>(count, 1)), dense_tensor(narrow),
                                       dense_tensor(narrow)};
    StepScalars scalars;
    scalars.learning_rate = 1e-4; // the spacing below 1 is 2^-8
    run_kernel(device(), "adamw",
               {{"ranges", std::vector<std::int64_t>{0, count, 0}}, {"streams", std::vector<std::int64_t>{7}}},
               {dense_tensor(wide, std::vector<double>(count, 3))}, outputs, scalars);
    double mean = 0, moment = 0;
    for (double weight : outputs[0].values()) {
        EXPECT_TRUE(weight == 1 || weight == 1 - 0x1p-8) << weight;
        mean += weight / count;
    }
    for (double value : outputs[1].values()) moment += value / count;
    EXPECT_NEAR(mean, 1 - 1e-4, 4 * 0x1p-8 * std::sqrt(0.0256 / count));
    EXPECT_NEAR(moment, 0.3, 1e-4);
}

// Gradients lie where the weights were: a skipped step has to make these anew.
TEST_P(AdamW, ASkippedStepRestoresWeightsFromTheirMaster) {
    const TensorType narrow{DType::bfloat16, {5}}, wide{DType::float32, {5}};
    const std::vector<double> master = {5, -3, 1 + 0x1p-12, 7, 9};
    const Chunk before = {dense_tensor(narrow, {8, 8, 8, 8, 8}), dense_tensor(wide, {1, 2, 3, 4, 5}),
                          dense_tensor(wide, {1, 2, 3, 4, 5}), dense_tensor(wide, master)};
    for (bool restores : {false, true}) {
        Chunk chunk = before;
        StepScalars scalars;
        scalars.finite = 0;
        run_kernel(device(), "adamw",
                   {{"ranges", std::vector<std::int64_t>{1, 3, 1, 3, 4, 0}}, {"master", true}, {"restores", restores}},
                   {before[0]}, chunk, scalars);
        const std::vector<double> restored = {8, -3, 1, 7, 8}; // the range, rounded
        EXPECT_EQ(chunk[0].values(), restores ? restored : before[0].values());
        for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(chunk[i].values(), before[i].values());
    }
}

// Every element has sixteen bits of its own for each of the three numbers: all halves of the words of three draws.
TEST(StochasticRounding, EveryNumberHasItsOwnBits) {
    const PhiloxKey key{1, 2};
    std::set<std::uint32_t> seen;
    for (Rounded what : {Rounded::weight, Rounded::moment1, Rounded::moment2}) {
        for (std::uint64_t block : {0, 1}) {
            const auto words = update_words(key, 7, what, block);
            for (int element = 0; element < update_group; ++element) {
                const std::uint32_t bits = update_bits(words, element) & 0xFFFFu;
                EXPECT_EQ(bits, words[static_cast<std::size_t>(element) / 2] >> (element % 2 == 0 ? 0 : 16) & 0xFFFFu);
                seen.insert(bits);
            }
        }
    }
    EXPECT_EQ(seen.size(), 48u);
    EXPECT_EQ(update_words(key, 7, Rounded::weight, 0), philox(key, {0, 0, 7, 0}));
}

// Weights that begin anywhere in a chunk, and tensors of any length, are rounded alike.
TEST_P(AdamW, RandomBitsDoNotDependOnThePlaceInTheChunk) {
    const auto updated = [&](std::int64_t begin) {
        constexpr std::int64_t length = 1003;
        const std::int64_t count = begin + length + 5;
        const TensorType narrow{DType::bfloat16, {count}}, wide{DType::float32, {count}};
        std::vector<HostTensor> outputs = {
            dense_tensor(narrow, std::vector<double>(static_cast<std::size_t>(count), 1)), dense_tensor(narrow),
            dense_tensor(narrow)};
        StepScalars scalars;
        scalars.learning_rate = 1e-3;
        run_kernel(device(), "adamw",
                   {{"ranges", std::vector<std::int64_t>{begin, begin + length, 0}},
                    {"streams", std::vector<std::int64_t>{7}}},
                   {dense_tensor(wide, std::vector<double>(static_cast<std::size_t>(count), 3))}, outputs, scalars);
        const std::vector<double> weights = outputs[0].values();
        return std::vector<double>(weights.begin() + begin, weights.begin() + begin + length);
    };
    const std::vector<double> first = updated(0);
    EXPECT_EQ(updated(3), first);
    EXPECT_EQ(updated(16), first);
}

TEST(StochasticRounding, LeavesWhatNeedsNoRounding) {
    for (std::uint32_t random : {0u, 1u, 0xFFFFu, 0xFFFFFFFFu}) {
        EXPECT_EQ(round_stochastically(0x3F800000u, random), 0x3F80u); // 1
        EXPECT_EQ(round_stochastically(0x7F800000u, random), 0x7F80u); // infinity
        EXPECT_EQ(round_stochastically(0x7F800001u, random), 0x7FC0u); // NaN
    }
    EXPECT_EQ(round_stochastically(0x3F808000u, 0x7FFFu), 0x3F80u);
    EXPECT_EQ(round_stochastically(0x3F808000u, 0x8000u), 0x3F81u);
}

TEST_P(AdamW, AStepThatIsNotFiniteChangesNothing) {
    Chunk chunk = chunk_of({1});
    StepScalars scalars;
    scalars.learning_rate = 0.1;
    scalars.finite = 0;
    update(chunk, scalars, {std::numeric_limits<double>::quiet_NaN()}, {0, 1, 1});
    EXPECT_EQ(chunk[0].values()[0], 1.0);
    EXPECT_EQ(chunk[2].values()[0], 0.0);
}

class FinishNorm : public StepEnd {
  protected:
    StepScalars finish(StepScalars scalars, const std::vector<double>& squares, double loss) const {
        const auto count = static_cast<std::int64_t>(squares.size());
        std::vector<HostTensor> sums = {dense_tensor({DType::float64, {3}})};
        run_kernel(device(), "sum_step", {{"squares", count}, {"loss", true}},
                   {dense_tensor({DType::float64, {count}}, squares), dense_tensor({dtype(), {}}, {loss})}, sums,
                   scalars);
        std::vector<HostTensor> outputs = {dense_tensor({DType::float64, {}})};
        run_kernel(device(), "finish_norm", {}, sums, outputs, scalars);
        EXPECT_TRUE(outputs[0].storage[0] == scalars.gradient_norm || std::isnan(scalars.gradient_norm));
        return scalars;
    }
};

TEST_P(FinishNorm, IsTheNormOverAllChunksAndTheMeanLoss) {
    StepScalars scalars;
    scalars.inverse_tokens = 0.25;
    scalars.loss_scale = 2;
    const StepScalars after = finish(scalars, {36, 64}, 10);
    EXPECT_DOUBLE_EQ(after.gradient_norm, 5);
    EXPECT_DOUBLE_EQ(after.loss, 2.5);
    EXPECT_DOUBLE_EQ(after.clip_factor, 1); // never clipped unless asked
    EXPECT_EQ(after.finite, 1);
}

TEST_P(FinishNorm, ClipsOnlyAboveTheLimit) {
    StepScalars scalars;
    scalars.max_norm = 1;
    EXPECT_NEAR(finish(scalars, {16}, 0).clip_factor, 0.25, 1e-6);
    EXPECT_DOUBLE_EQ(finish(scalars, {0.25}, 0).clip_factor, 1);
}

TEST_P(FinishNorm, SeesWhatIsNotFinite) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(finish({}, {infinity}, 1).finite, 0);
    EXPECT_EQ(finish({}, {1}, std::nan("")).finite, 0);
}

std::string name_of_target(const ::testing::TestParamInfo<On>& info) {
    return info.param == On::cuda ? "Cuda" : "Reference";
}
INSTANTIATE_TEST_SUITE_P(On, AdamW, ::testing::Values(On::reference, On::cuda), name_of_target);
INSTANTIATE_TEST_SUITE_P(On, FinishNorm, ::testing::Values(On::reference, On::cuda), name_of_target);

} // namespace
} // namespace tutti::testing

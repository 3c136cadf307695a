// The CUDA backend against the oracle, and that no operator is missing from it.
#include "backend/random_stream.h"
#include "backend/reference/reference.h"
#include "operators/cuda_device.h"
#include "operators/operator_cases.h"

#include <cstdio>
#include <cstdlib>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
namespace {

// With TUTTI_TEST_PART=k/n every n-th case from number k on: checkers are slow, and n processes share the work.
std::vector<Case> part_of(const std::vector<Case>& cases) {
    std::size_t first = 0, step = 1;
    const char* part = std::getenv("TUTTI_TEST_PART");
    if (part == nullptr) return cases;
    if (std::sscanf(part, "%zu/%zu", &first, &step) != 2 || first >= step) {
        ADD_FAILURE() << "TUTTI_TEST_PART is " << part << "; it has to be like 0/8";
        return {};
    }
    std::vector<Case> result;
    for (std::size_t i = first; i < cases.size(); i += step) result.push_back(cases[i]);
    return result;
}

class Cuda : public ::testing::Test {
  protected:
    void SetUp() override { skip_without_cuda(); }
    static const Device& device() { return *cuda_device().device; }

    static void expect_close(DType dtype, Tolerances tolerances, const std::vector<Case>& cases = operator_cases(),
                             std::span<const Look> looks = all_looks) {
        const auto reference = make_reference_device();
        for (const std::string& difference :
             compare_devices(device(), *reference, dtype, tolerances, part_of(cases), looks))
            ADD_FAILURE() << difference;
    }
};

constexpr Look some_looks[] = {Look::dense, Look::padded};

TEST_F(Cuda, AgreesWithTheReferenceInFloat32) { expect_close(DType::float32, {2e-6, 2e-6}); }

TEST_F(Cuda, AgreesWithTheReferenceInBf16) { expect_close(DType::bfloat16, {1e-2, 1e-3}); }

TEST_F(Cuda, AgreesAtTheWidthsOfModelsInFloat32) {
    expect_close(DType::float32, {4e-6, 4e-6}, large_cases(), some_looks);
}

TEST_F(Cuda, AgreesAtTheWidthsOfModelsInBf16) {
    expect_close(DType::bfloat16, {1e-2, 1e-3}, large_cases(), some_looks);
}

// Lengths of several tiles, heads of most classes of sizes, and all that attention may have, together.
TEST_F(Cuda, AgreesOnDrawsOfAttention) {
    std::mt19937_64 random(21);
    std::vector<Case> cases;
    for (int number = 0; number < 24; ++number) {
        auto [forward, backward] = attention_and_gradient(drawn_attention(random, number, 300, 200));
        cases.push_back(std::move(forward));
        cases.push_back(std::move(backward));
    }
    constexpr Look dense_only[] = {Look::dense};
    expect_close(DType::float32, {4e-6, 1e-5}, cases, dense_only);
    expect_close(DType::bfloat16, {1e-2, 2e-3}, cases, dense_only);
}

TEST_F(Cuda, EveryOperatorButViewsHasAKernel) {
    for (DType dtype : {DType::float32, DType::bfloat16}) {
        const std::vector<std::string> missing = missing_kernels(device(), dtype);
        EXPECT_TRUE(missing.empty()) << fmt::format("{}: {}", name_of(dtype), fmt::join(missing, ", "));
    }
}

// Twice the same, bit for bit: sums over rows, tokens and blocks must not depend on who comes first.
TEST_F(Cuda, RepeatsItselfExactly) {
    for (const Case& one : large_cases()) {
        const auto inputs = make_inputs(one, DType::bfloat16);
        std::vector<HostTensor> first = make_outputs(one, DType::bfloat16, *inputs), second = first;
        run_operator(device(), one, DType::bfloat16, *inputs, first);
        run_operator(device(), one, DType::bfloat16, *inputs, second);
        for (std::size_t i = 0; i < first.size(); ++i)
            EXPECT_EQ(encode(first[i].storage, first[i].type.dtype), encode(second[i].storage, second[i].type.dtype))
                << one.name << ", output " << i;
    }
}

// Which elements of dropout fall: exactly those that fall on every other device.
TEST_F(Cuda, DropsWhatTheReferenceDrops) {
    const auto reference = make_reference_device();
    StepScalars scalars;
    scalars.seed = 1234;
    scalars.step = 7;
    scalars.first_sample = 1000;
    struct Sizes {
        Shape shape;
        Attributes attributes;
    };
    using List = std::vector<std::int64_t>;
    const std::vector<Sizes> variants = {
        {{2, 24}, {{"p", 0.5}}},
        {{5, 31, 17}, {{"p", 0.1}}},
        {{1, 1023}, {{"p", 0.3}}},
        {{4, 64, 768}, {{"p", 0.1}, {"first_sample", std::int64_t{3}}}},
        {{3, 8, 16}, {{"p", 0.5}, {"offsets", List{4, 16}}, {"whole", List{20, 64}}}},
        {{3, 8, 16}, {{"p", 0.5}, {"offsets", List{3, 5}}, {"whole", List{20, 33}}}},
    };
    for (const Sizes& z : variants)
        for (DType dtype : {DType::float32, DType::bfloat16}) {
            const TensorType type{dtype, z.shape};
            const std::vector<HostTensor> ones = {
                dense_tensor(type, std::vector<double>(static_cast<std::size_t>(type.elements()), 1.0))};
            std::vector<HostTensor> here = {dense_tensor(type)}, there = here;
            run_kernel(device(), "dropout", z.attributes, ones, here, scalars, {.source = "h.0.mlp"});
            run_kernel(*reference, "dropout", z.attributes, ones, there, scalars, {.source = "h.0.mlp"});
            std::int64_t differ = 0;
            for (std::size_t i = 0; i < here[0].storage.size(); ++i)
                differ += (here[0].storage[i] == 0) != (there[0].storage[i] == 0);
            EXPECT_EQ(differ, 0) << to_string(type);
        }
}

// What was recorded runs as it did when it was given for the first time.
TEST_F(Cuda, ReplaysWhatItRecorded) {
    const TensorType type{DType::float32, {1000}};
    const Operand operand{type, dense_strides(type.shape)};
    const auto kernel =
        device().prepare({"accumulate", {{"dtype", std::string("float32")}}, {operand}, {operand}, true, {}});
    DeviceStorage x(device(), DType::float32, 1000), sum(device(), DType::float32, 1000);
    x.write(std::vector<double>(1000, 0.5));
    sum.write(std::vector<double>(1000, 1.0));
    const std::byte* in = x.at(0);
    std::byte* out = sum.at(0);
    const auto queue = device().make_queue();
    const auto run = [&] { kernel->run({.inputs = {&in, 1}, .outputs = {&out, 1}, .queue = queue.get()}); };
    run();
    const auto recording = queue->record(run);
    for (int i = 0; i < 3; ++i) queue->replay(*recording);
    queue->synchronize();
    EXPECT_EQ(sum.read(), std::vector<double>(1000, 3.0));
}

} // namespace
} // namespace tutti::testing

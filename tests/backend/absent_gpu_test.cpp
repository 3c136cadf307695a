// What kernels take on a GPU that is not here, against what they took on an H200: the workspace in the memory tables of
// bench/results/2026-11-16-offload-h200-*.md.
#include "backend/absent_gpu.h"
#include "base/error.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace backend;
namespace {

const std::unique_ptr<Device> h200 = make_absent_gpu("h200", {std::int64_t{139} << 30});

Operand dense(DType dtype, const Shape& shape) { return {{dtype, shape}, dense_strides(shape)}; }

std::int64_t workspace(const KernelRequest& request) { return h200->prepare(request)->workspace().count; }

// All rows at a time.
KernelRequest head(std::int64_t batch, std::int64_t vocabulary, std::int64_t width, DType gradients) {
    const DType bf16 = DType::bfloat16;
    const Operand x = dense(bf16, {batch, 1024, width});
    return {
        .op = "linear_cross_entropy_gradient",
        .attributes = {{"rows", batch * 1024}},
        .inputs = {dense(DType::float32, {}), x, dense(bf16, {vocabulary, width}), dense(DType::int64, {batch, 1024})},
        .outputs = {dense(DType::float32, {}), x, dense(gradients, {vocabulary, width})},
        .source = ""};
}

TEST(AbsentGpu, HeadsTakeWhatTheyTookOnAnH200) {
    EXPECT_EQ(workspace(head(32, 50257, 4096, DType::float32)), 4566679552); // patrickstar-10b, 10b-f32-states
    EXPECT_EQ(workspace(head(4, 50257, 8192, DType::bfloat16)), 2094022656); // patrickstar-20b, 20b-bf16-moments
}

TEST(AbsentGpu, AttentionTakesWhatItTookOnAnH200) {
    const Operand heads = dense(DType::bfloat16, {8, 2048, 32, 128}), sums = dense(DType::float32, {8, 32, 2048});
    const KernelRequest request{.op = "attention_gradient",
                                .attributes = {{"causal", true}},
                                .inputs = {heads, heads, heads, heads, heads, sums},
                                .outputs = {heads, heads, heads},
                                .source = ""};
    EXPECT_EQ(workspace(request), 2149581056); // llama2-7b, 7b-100%-32k
}

// From the sizes alone: 2 x 32 heads of 1000 rows, in blocks of 128; with dropout, cuDNN is not asked.
TEST(AbsentGpu, OwnAttentionTakesMemoryThatIsLinearInTheSequence) {
    auto taken = [](std::int64_t length) {
        const Operand heads = dense(DType::bfloat16, {2, length, 32, 80}),
                      sums = dense(DType::float32, {2, 32, length});
        return workspace({.op = "attention_gradient",
                          .attributes = {{"causal", true}, {"dropout", 0.1}},
                          .inputs = {heads, heads, heads, heads, heads, sums},
                          .outputs = {heads, heads, heads},
                          .source = ""});
    };
    EXPECT_EQ(taken(1000), 2 * 32 * 1024 * (96 + 2) * 4 + 2 * 32 * 8 * 8 * 4 + 256);
    EXPECT_EQ(taken(131072) - 256, 128 * (taken(1024) - 256));
}

TEST(AbsentGpu, HasTheMemoryOfItsKindAndNoKernelThatRuns) {
    ASSERT_TRUE(h200->memory());
    EXPECT_EQ(h200->memory()->total, Bytes{std::int64_t{139} << 30});
    EXPECT_LT(h200->memory()->free, h200->memory()->total);
    EXPECT_TRUE(h200->supports(DType::bfloat16));
    EXPECT_FALSE(h200->supports(DType::float64));
    EXPECT_THROW(h200->prepare(KernelRequest())->run({}), Bug);
}

} // namespace
} // namespace tutti

#include "costs/cost_model.h"

#include "base/error.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace costs;
using namespace ops;
namespace {

Cluster two_nodes(std::string_view device) {
    return uniform_cluster({.device = *find_device_preset(device),
                            .devices = 8,
                            .link = {3e-6, 240e9},
                            .host_memory = {1ll << 40},
                            .host_copy = {1e-5, 20e9}},
                           2, {.name = "fabric", .speed = {8e-6, 20e9}});
}

TensorType bf16(Shape shape) { return {DType::bfloat16, std::move(shape)}; }

class RooflineTest : public testing::Test {
  protected:
    Cluster cluster = two_nodes("h200");
    RooflineCost cost{cluster, all_operators()};

    double linear(std::int64_t rows, std::int64_t in, std::int64_t out, DType dtype = DType::bfloat16) {
        const TensorType types[] = {{dtype, {rows, in}}, {dtype, {out, in}}};
        const TensorType result[] = {{dtype, {rows, out}}};
        return cost.kernel_seconds("linear", types, result, {}, 0);
    }
};

TEST_F(RooflineTest, LargeProductsAreBoundByFlops) {
    EXPECT_DOUBLE_EQ(linear(8192, 4096, 4096), 3e-6 + 2.0 * 8192 * 4096 * 4096 / (989e12 * 0.68));
    EXPECT_DOUBLE_EQ(linear(8192, 4096, 4096, DType::float32), 3e-6 + 2.0 * 8192 * 4096 * 4096 / (67e12 * 0.68));
}

TEST_F(RooflineTest, ThinProductsAndActivationsAreBoundByBytes) {
    EXPECT_DOUBLE_EQ(linear(1, 4096, 4096), 3e-6 + 2.0 * (4096 + 4096 * 4096 + 4096) / (4800e9 * 0.68));
    const TensorType x[] = {bf16({4096, 4096})};
    EXPECT_DOUBLE_EQ(cost.kernel_seconds("gelu", x, x, {}, 0), 3e-6 + 2.0 * 2 * 4096 * 4096 / (4800e9 * 0.68));
}

// The measured step of bench/results/2026-11-15-h200.md: 12 attentions of GPT-2 took 4.49 ms, their gradients 15.37 ms.
TEST_F(RooflineTest, AttentionIsAsSlowAsItWasMeasured) {
    const TensorType q = bf16({64, 1024, 12, 64}), statistics{DType::float32, {64, 12, 1024}};
    const TensorType in[] = {q, q, q}, out[] = {q, statistics}, back[] = {q, q, q, q, q, statistics};
    const Attributes causal{{"causal", true}};
    EXPECT_NEAR(cost.kernel_seconds("attention", in, out, causal, 0), 4.49e-3 / 12, 0.1 * 4.49e-3 / 12);
    EXPECT_NEAR(cost.kernel_seconds("attention_gradient", back, in, causal, 0), 15.37e-3 / 12, 0.1 * 15.37e-3 / 12);
}

// The same step's head, 25.37 ms: its first input is a float32 scalar, and it computes in bf16 all the same.
TEST_F(RooflineTest, TheHeadComputesInTheTypeOfItsLargestInput) {
    const TensorType in[] = {{DType::float32, {}}, bf16({65536, 768}), bf16({50257, 768}), {DType::int64, {65536}}};
    const TensorType out[] = {{DType::float32, {}}, bf16({65536, 768}), {DType::float32, {50257, 768}}};
    EXPECT_NEAR(cost.kernel_seconds("linear_cross_entropy_gradient", in, out, {{"rows", std::int64_t{4096}}}, 0),
                25.37e-3, 0.1 * 25.37e-3);
}

// Of llama-1b: 8.24 ms in five passes, 18 bytes for each of 1.1e9 parameters.
TEST_F(RooflineTest, TheOptimizerMovesItsBytes) {
    EXPECT_NEAR(cost.optimizer_seconds(1'100'048'384, 18, 0), 8.24e-3, 0.1 * 8.24e-3);
    const TensorType gradient{DType::float32, {1 << 20}}, weight = bf16({1 << 20});
    const TensorType out[] = {weight, gradient, gradient, gradient};
    const Attributes master{{"master", true}};
    EXPECT_DOUBLE_EQ(cost.kernel_seconds("adamw", {&gradient, 1}, out, master, 0),
                     cost.optimizer_seconds(1 << 20, 18, 0));
}

TEST_F(RooflineTest, InstructionsCostWhatTheirOperatorsDo) {
    Instruction product{.op = "linear"};
    product.inputs = {{.address = {}, .type = bf16({64, 512}), .strides = {512, 1}},
                      {.address = {}, .type = bf16({256, 512}), .strides = {512, 1}}};
    product.outputs = {{.address = {}, .type = bf16({64, 256}), .strides = {256, 1}, .access = Access::write}};
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(product, 0), linear(64, 512, 256));
    // Not an operator: moves its operands
    Instruction unknown = product;
    unknown.op = "some_copy";
    EXPECT_DOUBLE_EQ(cost.kernel_seconds(unknown, 0), 3e-6 + 2.0 * (64 * 512 + 256 * 512 + 64 * 256) / (4800e9 * 0.68));
}

TEST_F(RooflineTest, LinksComeFromTheCluster) {
    EXPECT_DOUBLE_EQ(cost.collective_seconds(Collective::all_gather, {8'000'000}, {{8}}, 0),
                     7 * 3e-6 + 7.0 / 8 * 8e6 / 240e9);
    EXPECT_DOUBLE_EQ(cost.message_seconds({8'000'000}, 1, 0, 0), 8e-6 + 8e6 / 20e9);
    EXPECT_DOUBLE_EQ(cost.host_copy_seconds({1'000'000}, 0), 1e-5 + 1e6 / 20e9);
    EXPECT_THROW(cost.host_copy_seconds({1}, 1), Bug);
    const TensorType x[] = {bf16({8})};
    EXPECT_THROW(cost.kernel_seconds("all_reduce", x, x, {{"combine", std::string("sum")}}, 0), Bug);
}

TEST(MixedCost, EachKindHasItsOwnSpeed) {
    Cluster cluster = two_nodes("h100");
    cluster.kinds.push_back(cluster.kinds[0]);
    cluster.kinds[1].device = *find_device_preset("rtx3090");
    cluster.kinds[1].link.bytes = 24e9;
    cluster.nodes = {0, 1};
    check(cluster);
    const RooflineCost cost(cluster, all_operators());
    const TensorType in[] = {bf16({4096, 4096}), bf16({4096, 4096})}, out[] = {bf16({4096, 4096})};
    const double launch = 3e-6;
    EXPECT_NEAR((cost.kernel_seconds("linear", in, out, {}, 1) - launch) /
                    (cost.kernel_seconds("linear", in, out, {}, 0) - launch),
                989.0 / 71, 1e-9);
    EXPECT_GT(cost.collective_seconds(Collective::all_reduce, {1 << 20}, {{8}}, 1),
              cost.collective_seconds(Collective::all_reduce, {1 << 20}, {{8}}, 0));
}

TEST(Overlap, EachIsSlowerAsLongAsBothGoOn) {
    EXPECT_DOUBLE_EQ(overlapped_seconds(10, 4, {1, 1}), 10);
    EXPECT_DOUBLE_EQ(overlapped_seconds(4, 10, {1, 1}), 10);
    // 5 s in which 4 s of communication and 4 s of computing are done; 6 s remain
    EXPECT_DOUBLE_EQ(overlapped_seconds(10, 4, {1.25, 1.25}), 11);
    EXPECT_DOUBLE_EQ(overlapped_seconds(4, 10, {1.25, 2}), 5 + 10 - 2.5);
    EXPECT_DOUBLE_EQ(overlapped_seconds(5, 5, {4, 4}), 10); // never worse than one after the other
    EXPECT_DOUBLE_EQ(overlapped_seconds(0, 5, {2, 2}), 5);
    EXPECT_DOUBLE_EQ(overlapped_seconds(5, 0, {2, 2}), 5);
}

TEST(DevicePresets, AreWholeAndTellTheirSpeed) {
    for (const DeviceKind& kind : device_presets()) {
        EXPECT_NO_THROW(check(uniform_cluster({.device = kind, .host_copy = {0, 1e9}}, 1, {}))) << kind.name;
        EXPECT_EQ(find_device_preset(kind.name), &kind);
        EXPECT_GT(kind.flops16, kind.flops32);
    }
    const KernelSpeed speed = speed_of(*find_device_preset("h200"), DType::bfloat16);
    EXPECT_DOUBLE_EQ(speed.flops, 989e12 * 0.68);
    EXPECT_DOUBLE_EQ(speed.bytes, 4800e9 * 0.68);
    EXPECT_EQ(find_device_preset("h300"), nullptr);
}

// bf16 came with Ampere: of all that have names, V100 alone is older.
TEST(DevicePresets, KernelsAreForGpusSinceAmpere) {
    for (const DevicePreset& kind : device_presets()) {
        EXPECT_EQ(kind.has_kernels(), !kind.name.starts_with("v100")) << kind.name;
        EXPECT_EQ(kind.run_device, "cuda") << kind.name;
        EXPECT_NE(find_link_preset(kind.link), nullptr) << kind.name;
        EXPECT_FALSE(kind.models.empty()) << kind.name;
        for (const std::string& model : kind.models) EXPECT_EQ(find_device_called(model), &kind) << model;
    }
    EXPECT_EQ(find_device_called("NVIDIA A10G"), nullptr); // half as fast as an A10
    EXPECT_EQ(find_device_called("NVIDIA H200 NVL"), nullptr);
}

// What a driver says of boards whose data sheets are known: clocks and buses as published, peaks as data sheets have
// them. NVIDIA rounds clocks, and drivers give the highest, which is up to a seventh above the one that peaks are for.
TEST(DevicePresets, AnUnknownGpuHasWhatItsDriverSays) {
    struct Board {
        const char *name, *model;
        GpuFigures figures; // compute capability, multiprocessors, clock, memory clock and bus
    };
    const Board boards[] = {
        {"a10", "x", {86, 72, 1.695e9, 6.251e9, 384}},
        {"a30", "x", {80, 56, 1.44e9, 1.215e9, 3072}},
        {"a40", "x", {86, 84, 1.74e9, 7.251e9, 384}},
        {"a100-40", "x", {80, 108, 1.41e9, 1.215e9, 5120}},
        {"a100-80", "x", {80, 108, 1.41e9, 1.593e9, 5120}},
        {"l4", "x", {89, 58, 2.04e9, 6.251e9, 192}},
        {"l40s", "x", {89, 142, 2.52e9, 9.001e9, 384}},
        {"rtx6000-ada", "x", {89, 142, 2.505e9, 10.001e9, 384}},
        {"rtx3090", "NVIDIA GeForce RTX", {86, 82, 1.695e9, 9.751e9, 384}},
        {"rtx4090", "NVIDIA GeForce RTX", {89, 128, 2.52e9, 10.501e9, 384}},
        {"rtx5090", "NVIDIA GeForce RTX", {120, 170, 2.407e9, 14.001e9, 512}},
        {"h100", "x", {90, 132, 1.83e9, 2.619e9, 5120}},
        {"h200", "x", {90, 132, 1.98e9, 3.201e9, 6144}},
    };
    for (const Board& board : boards) {
        const DeviceKind& known = *find_device_preset(board.name);
        const DeviceKind kind = kind_by_driver(board.model, known.memory, board.figures);
        EXPECT_NEAR(kind.flops16 / known.flops16, 1.07, 0.08) << board.name;
        EXPECT_NEAR(kind.flops32 / known.flops32, 1.0, 0.09) << board.name;
        EXPECT_NEAR(kind.bandwidth / known.bandwidth, 1.0, 0.03) << board.name;
        EXPECT_NO_THROW(check(uniform_cluster({.device = kind, .host_copy = {0, 1e9}}, 1, {}))) << board.name;
    }
}

TEST(Clusters, WrongValuesAreSentences) {
    Cluster cluster = two_nodes("h100");
    auto sentence = [](const Cluster& wrong) -> std::string {
        try {
            check(wrong);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    cluster.kinds[0].device.bandwidth = -1;
    EXPECT_EQ(sentence(cluster), "the memory bandwidth of h100 is -1, and should be above 0");
    cluster = two_nodes("h100");
    cluster.levels[1].speed.bytes = 0;
    EXPECT_EQ(sentence(cluster), "the bandwidth of level fabric is 0, and should be above 0");
    cluster = two_nodes("h100");
    cluster.nodes.clear();
    EXPECT_EQ(sentence(cluster), "the cluster has no devices");
}

} // namespace
} // namespace tutti

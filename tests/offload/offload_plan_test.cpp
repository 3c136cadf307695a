// What plan_offload chooses between.
#include "compile/compile.h"
#include "compile/graphs/step_graph.h"
#include "models/model.h"
#include "offload/model_data_size.h"
#include "offload/offload_plan.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace compile;
using namespace models;
using namespace offload;
namespace {

Program tiny_llama() {
    Plan plan;
    plan.workload = {.sequence = 16, .global_batch = 4, .micro_batch = 2};
    plan.precision = {.compute = DType::bfloat16};
    plan.chunk_elements = 50'000;
    Model model = open_model("llama-tiny").build({2, 16, DType::bfloat16});
    const ValueId loss = model.loss;
    return compile_training(make_training_graph(std::move(model.graph), loss), plan).program;
}

// A host that updates in no time, behind slow copies: it is best given all that does not stay.
OffloadSpeed fast_host() {
    return {.seconds = [](const Instruction& one, const Task&) { return one.lane == Lane::host ? 0.0 : 1e-6; },
            .host = {.latency = 1e-5, .in = 1e9, .out = 1e9}};
}

OffloadPlan planned(Bytes free) {
    Program program = tiny_llama();
    const Bytes data = model_data(program);
    return plan_offload(program, nullptr, {.device = {data.count / 2}, .host = data, .free = free}, fast_host());
}

TEST(PlanOffload, TakesNoMoreHostMemoryThanIsFreeWhereItCan) {
    const Bytes data = model_data(tiny_llama());
    const OffloadPlan fastest = planned(data), small = planned(fastest.backing.host - Bytes{1});
    EXPECT_GT(fastest.host_updates.size(), 0U);
    EXPECT_LT(small.backing.host, fastest.backing.host); // gradients and weights of what the device updates stay there
    EXPECT_LT(small.host_updates.size(), fastest.host_updates.size());
    EXPECT_GT(small.training.residency.seconds, fastest.training.residency.seconds);
    // Where nothing fits, the plan that lacks the least: the sentence about it names the least that works.
    const OffloadPlan least = planned({});
    EXPECT_LE(least.backing.host, small.backing.host);
    EXPECT_EQ(planned(least.backing.host).backing.host, least.backing.host);
}

// A plan knows how long the disk takes, and says so where that is longer than everything else.
TEST(PlanOffload, CountsTheDisksTime) {
    auto with_disk = [](double bytes_per_second) {
        Program program = tiny_llama();
        const Bytes data = model_data(program), most{data.count / 4};
        OffloadSpeed speed = fast_host();
        speed.disk = CopySpeed{.in = bytes_per_second, .out = bytes_per_second};
        const OffloadLimits limits{.device = {data.count / 3}, .host = most, .free = data, .has_disk = true};
        return plan_offload(program, nullptr, limits, speed);
    };
    const OffloadPlan quick = with_disk(1e12), slow = with_disk(1e7);
    for (const OffloadPlan* plan : {&quick, &slow}) {
        EXPECT_GT(plan->backing.disk, Bytes{});
        EXPECT_LE(plan->backing.host.count, model_data(tiny_llama()).count / 4);
    }
    EXPECT_EQ(slow_disk(quick, "there"), std::nullopt);
    const std::string sentence = slow_disk(slow, "there").value_or("");
    EXPECT_NE(sentence.find("come from there"), std::string::npos) << sentence;
    // Each way takes its bytes' time.
    EXPECT_GE(slow.training.residency.seconds, static_cast<double>(slow.backing.disk.count) / 2 / 1e7);
    EXPECT_LT(quick.training.residency.seconds, slow.training.residency.seconds / 2);
}

// Four chunks are too large for the device to update them. The host has room for these, and not for all.
TEST(PlanOffload, TheHostUpdatesChunksThatAreTooLargeForTheDevice) {
    Program program = tiny_llama();
    const std::int64_t largest = *std::ranges::max_element(program.chunk_elements);
    ASSERT_EQ(std::ranges::count(program.chunk_elements, largest), 4);
    const OffloadLimits limits{
        .device = {16 * largest}, .host = {4 * 19 * largest}, .free = {1 << 30}, .has_disk = true};
    const OffloadPlan plan = plan_offload(program, nullptr, limits, fast_host());
    EXPECT_GE(plan.host_updates.size(), 4U);
    EXPECT_LT(std::ssize(plan.host_updates), plan.updates);
    EXPECT_LE(plan.backing.host, limits.host);
    EXPECT_GT(plan.backing.disk, Bytes{});
    // On the device alone there is no plan.
    OffloadLimits device = limits;
    device.placement = OptimizerPlacement::device;
    Program again = tiny_llama();
    EXPECT_THROW(plan_offload(again, nullptr, device, fast_host()), DeviceTooSmall);
}

} // namespace
} // namespace tutti

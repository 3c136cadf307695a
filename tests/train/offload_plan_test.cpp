// What plan_offload chooses between.
#include "compile/compile.h"
#include "compile/step_graph.h"
#include "models/model.h"
#include "train/offload.h"

#include <gtest/gtest.h>

namespace tutti {
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

Bytes model_data(const Program& program) {
    std::int64_t elements = 0;
    for (std::int64_t chunk : program.chunk_elements) elements += chunk;
    return {18 * elements};
}

// A host that updates in no time, behind slow copies: it is best given all that does not stay.
OffloadSpeed fast_host() {
    return {.seconds = [](const Instruction& one, const Task&) { return one.lane == Lane::host ? 0.0 : 1e-6; },
            .in = {.latency = 1e-5, .bytes = 1e9},
            .out = {.latency = 1e-5, .bytes = 1e9}};
}

OffloadPlan planned(Bytes free) {
    Program program = tiny_llama();
    const Bytes data = model_data(program);
    return plan_offload(program, nullptr, {.device = {data.count / 2}, .host = data, .free = free}, fast_host());
}

TEST(PlanOffload, TakesNoMoreHostMemoryThanIsFreeWhereItCan) {
    const Bytes data = model_data(tiny_llama());
    const OffloadPlan fastest = planned(data), small = planned(fastest.homes.host - Bytes{1});
    EXPECT_GT(fastest.updates_at_home, 0);
    EXPECT_LT(small.homes.host, fastest.homes.host); // gradients and weights of what the device updates stay there
    EXPECT_LT(small.updates_at_home, fastest.updates_at_home);
    EXPECT_GT(small.training.residency.seconds, fastest.training.residency.seconds);
    // Where nothing fits, the plan that lacks the least: the sentence about it names the least that works.
    const OffloadPlan least = planned({});
    EXPECT_LE(least.homes.host, small.homes.host);
    EXPECT_EQ(planned(least.homes.host).homes.host, least.homes.host);
}

} // namespace
} // namespace tutti

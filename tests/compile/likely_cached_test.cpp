// Which operands of kernels are near: that decides what they are taken to cost.
#include "compile/compile.h"
#include "costs/kernel_times.h"
#include "models/model.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tutti {

using namespace compile;
using namespace costs;
using namespace models;
using namespace sharding;
namespace {

Program compiled(Mesh mesh, int zero, bool halves) {
    const ModelSource source = open_model("gpt2-tiny");
    Plan plan;
    plan.mesh = mesh;
    plan.zero = zero;
    plan.sub_pipeline = halves;
    plan.workload = {16, 4 * mesh.data, 2};
    const Model model = source.build({halves ? 1 : 2, 16, DType::float32});
    return compile::compile(model.graph, plan, 0).program;
}

std::vector<const Instruction*> products(const Program& program) {
    std::vector<const Instruction*> found;
    for (const Segment& segment : program.segments)
        for (const Instruction& one : segment.instructions)
            if (segment.kind == TaskKind::forward && one.op.starts_with("linear")) found.push_back(&one);
    return found;
}

TEST(Near, WeightsThatWereGatheredAreNot) {
    const Program whole = compiled({.data = 2}, 0, false), sharded = compiled({.data = 2}, 3, false);
    std::set<std::string> of_whole, of_spread;
    for (const Instruction* one : products(whole)) of_whole.insert(kernel_key(*one, false));
    for (const Instruction* one : products(sharded)) of_spread.insert(kernel_key(*one, false));
    EXPECT_FALSE(of_whole.empty());
    EXPECT_EQ(of_whole, of_spread);
}

TEST(Near, IsWhatTheOtherHalfHasJustRead) {
    const Program program = compiled({.tensor = 2}, 0, true);
    std::map<std::string, std::vector<bool>> weights; // by place in the model, in the order of the program
    for (const Instruction* one : products(program)) weights[one->source].push_back(one->inputs[1].likely_cached);
    EXPECT_FALSE(weights.empty());
    for (const auto& [source, likely_cached] : weights) {
        ASSERT_EQ(likely_cached.size(), 2u) << source;
        EXPECT_FALSE(likely_cached[0]) << source;
    }
    EXPECT_TRUE(std::ranges::any_of(weights, [](const auto& one) { return one.second[1]; }));
}

} // namespace
} // namespace tutti

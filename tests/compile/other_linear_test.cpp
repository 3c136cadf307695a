// A matmul-like operator of another name, as somebody might add one: linear again, with gradients of other names.
// Whatever is done to linear on the way to a program is done to it, since nobody asks for the name: the programs are
// the same.
#include "compile/compile.h"
#include "graph/autodiff.h"
#include "models/model.h"
#include "ops/operators.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti {

using namespace compile;
using namespace models;
using namespace ops;
using namespace schedule;
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> other_names = {
    {{"linear", "dense"},
     {"linear_input_gradient", "dense_input_gradient"},
     {"linear_weight_gradient", "dense_weight_gradient"},
     {"bias_gradient", "dense_bias_gradient"}}};

std::string_view other_name(std::string_view name) {
    const auto found = std::ranges::find(other_names, name, [](const auto& pair) { return pair.first; });
    return found == other_names.end() ? name : found->second;
}

void dense_gradient(GradientBuilder& g) {
    if (g.wants(0)) g.set(0, g.emit("dense_input_gradient", {g.gradient(), g.input(1)}));
    if (g.wants(1)) g.set(1, g.emit("dense_weight_gradient", {g.gradient(), g.input(0)}));
    if (g.wants(2)) g.set(2, g.emit("dense_bias_gradient", {g.gradient()}));
}

// All operators but those, which have their other names.
const OperatorSet& operators_with_dense() {
    static const OperatorSet set = [] {
        std::vector<Operator> all;
        for (Operator op : all_operators().all()) {
            if (op.name == "linear") {
                op.gradient = dense_gradient;
                op.product->input_gradient = other_name(op.product->input_gradient);
                op.product->weight_gradient = other_name(op.product->weight_gradient);
                op.product->bias_gradient = other_name(op.product->bias_gradient);
            }
            op.gradient_of = other_name(op.gradient_of);
            op.name = other_name(op.name);
            all.push_back(std::move(op));
        }
        return OperatorSet(std::move(all));
    }();
    return set;
}

// The same graph, with the other names. Values keep their numbers.
Graph with_dense(const Graph& from) {
    Graph to(operators_with_dense());
    for (const StoredTensor& stored : from.stored()) to.add_stored(stored.name, stored.type);
    for (std::size_t i = 0; i < from.values().size(); ++i) {
        const Value& value = from.values()[i];
        const auto id = static_cast<ValueId>(i);
        if (value.producer != NodeId::none) {
            const Node& node = from.node(value.producer);
            if (node.outputs.front() != id) continue; // made with the first
            to.set_block(node.block);
            to.add_node(other_name(node.op->name), node.inputs, node.attributes, node.source);
        } else if (const Parameter* parameter = from.parameter_of(id)) {
            to.add_parameter(parameter->stored, value.type.shape, value.layout, parameter->further);
        } else {
            to.add_input(value.name, value.type);
        }
    }
    for (const Output& output : from.outputs()) to.add_output(output);
    return to;
}

std::string with_usual_names(std::string text) {
    for (const auto& [usual, other] : other_names) {
        const std::string called = std::string(other) + "(", wanted = std::string(usual) + "(";
        for (std::size_t at = 0; (at = text.find(called, at)) != std::string::npos; at += wanted.size())
            text.replace(at, called.size(), wanted);
    }
    return text;
}

struct Setting {
    const char* name;
    const char* model;
    sharding::Mesh mesh;
    bool sequence_parallel = true, sub_pipeline = false;
    std::vector<std::vector<int>> recompute = {};
};

class OtherLinear : public ::testing::TestWithParam<Setting> {};

TEST_P(OtherLinear, HasTheProgramsOfLinear) {
    const Setting& setting = GetParam();
    Plan plan;
    plan.mesh = setting.mesh;
    plan.workload = {16, 8, 2};
    plan.sequence_parallel = setting.sequence_parallel;
    plan.sub_pipeline = setting.sub_pipeline;
    plan.recompute = setting.recompute;
    plan.chunk_elements = 20'000;
    plan.fusion = FusionOptions{};
    if (setting.mesh.pipe > 1) {
        const ScheduleParameters parameters =
            resolve({.family = "1f1b", .ranks = 2, .micro_batches = static_cast<int>(plan.micro_batches())});
        const Costs costs = uniform_costs(parameters, {});
        plan.schedule = PlannedSchedule{make_schedule(parameters, costs), costs};
        plan.cuts = {2};
    }
    const Model model = open_model(setting.model).build({setting.sub_pipeline ? 1 : 2, 16, DType::float32});
    const Graph other = with_dense(model.graph);
    for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
        SCOPED_TRACE(rank);
        const std::string expected = to_text(compile::compile(model.graph, plan, rank).program);
        const std::string found = to_text(compile::compile(other, plan, rank).program);
        EXPECT_NE(found.find("dense("), std::string::npos);
        EXPECT_EQ(found.find(" linear("), std::string::npos);
        EXPECT_EQ(with_usual_names(found), expected);
    }
}

INSTANTIATE_TEST_SUITE_P(Plans, OtherLinear,
                         ::testing::Values(Setting{"Alone", "gpt2-tiny", {}}, Setting{"Merged", "llama-tiny", {}},
                                           Setting{"Tensor", "gpt2-tiny", {.tensor = 2}},
                                           Setting{"TensorLlama", "llama-tiny", {.tensor = 2}},
                                           Setting{"WithoutSequence", "llama-tiny", {.tensor = 2}, false},
                                           Setting{"Halves", "gpt2-tiny", {.tensor = 2}, true, true},
                                           Setting{"Recomputed", "llama-tiny", {}, true, false, {{0, 1, 2}}},
                                           Setting{"Pipeline", "llama-tiny", {.pipe = 2}}),
                         [](const ::testing::TestParamInfo<Setting>& one) { return one.param.name; });

} // namespace
} // namespace tutti

// Fusing changes how a step is computed, not what: losses and gradients of whole models with fusion and without.
#include "backend/cpu/cpu.h"
#include "base/file.h"
#include "base/philox.h"
#include "compile/graphs/step_graph.h"
#include "models/model.h"
#include "operators/interpreter.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace tutti {

using namespace backend::cpu;
using namespace compile;
using namespace models;
namespace {

constexpr std::int64_t batch = 9, sequence = 11; // 99 rows: the head's parts are of 64 at least

std::string reference(const char* name) { return (test::test_data() / "references" / name).string(); }

Graph training_graph(const std::string& name, const FusionOptions& fusion) {
    Model model = open_model(name).build({batch, sequence, DType::float32});
    const ValueId loss = model.loss;
    return make_training_graph(std::move(model.graph), loss, fusion);
}

std::map<std::string, int> operators_of(const Graph& graph) {
    std::map<std::string, int> count;
    for (const Node& node : graph.nodes()) {
        const bool added = node.op->name == "linear_input_gradient" && node.inputs.size() == 3;
        ++count[std::string(node.op->name) + (added ? "+" : "")];
    }
    return count;
}

double uniform(std::uint64_t tensor, std::size_t i) { return static_cast<double>(mix_bits(tensor, i) >> 11) * 0x1p-53; }

struct Step {
    double loss = 0;
    std::vector<std::vector<double>> gradients; // per stored tensor
};

// With weights and tokens that depend on nothing but their place.
Step run_step(const Graph& graph, std::int64_t vocabulary) {
    const auto device = make_cpu_device(2);
    testing::Interpreter interpreter(graph, *device);
    interpreter.scalars.inverse_tokens = 1.0 / (batch * sequence);
    for (ValueId input : graph.inputs()) {
        std::vector<double> ids(static_cast<std::size_t>(graph.type(input).elements()));
        for (std::size_t i = 0; i < ids.size(); ++i)
            ids[i] = std::floor(uniform(index(input), i) * static_cast<double>(vocabulary));
        if (graph.value(input).name == "targets")
            for (std::size_t i = 0; i < ids.size(); i += 5) ids[i] = -100;
        interpreter.set(input, ids);
    }
    for (std::size_t s = 0; s < graph.stored().size(); ++s) {
        std::vector<double> values(static_cast<std::size_t>(graph.stored()[s].type.elements()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.4 * (uniform(100 + s, i) - 0.4);
        interpreter.set_stored(s, values);
    }
    interpreter.run();
    Step step{interpreter.get(graph.output("loss")->value)[0], {}};
    for (const StoredTensor& stored : graph.stored())
        step.gradients.emplace_back(static_cast<std::size_t>(stored.type.elements()), 0.0);
    for (const Parameter& parameter : graph.parameters()) {
        const Value& value = graph.value(parameter.value);
        const std::vector<double> gradient = interpreter.gradient_of(parameter.value);
        const testing::HostTensor view{value.type, value.layout, {}};
        std::vector<double*> places; // of the elements of the stored tensor, or of all of a run
        for (std::int32_t stored : parameter.run())
            for (double& place : step.gradients[static_cast<std::size_t>(stored)]) places.push_back(&place);
        for (std::size_t i = 0; i < gradient.size(); ++i)
            *places[view.place(static_cast<std::int64_t>(i))] += gradient[i];
    }
    return step;
}

double norm(const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value * value;
    return std::sqrt(sum);
}

void expect_same(const std::string& name, const FusionOptions& fusion) {
    SCOPED_TRACE(name);
    const std::int64_t vocabulary = open_model(name).facts().vocabulary;
    const Graph plain = training_graph(name, no_fusion), fused = training_graph(name, fusion);
    const Step expected = run_step(plain, vocabulary), found = run_step(fused, vocabulary);
    EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss);
    double all = 0;
    for (const auto& gradient : expected.gradients) all += std::pow(norm(gradient), 2);
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (std::size_t p = 0; p < expected.gradients.size(); ++p) {
        std::vector<double> difference = found.gradients[p];
        for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected.gradients[p][i];
        EXPECT_LE(norm(difference), 1e-6 * norm(expected.gradients[p]) + 2e-8 * std::sqrt(all))
            << fused.stored()[p].name;
    }
}

TEST(Fusion, ChangesNeitherLossesNorGradients) {
    for (const char* name : {"gpt2-tiny", "llama-tiny"}) expect_same(name, {});
    for (const char* name : {"gpt2", "llama", "gemma", "olmo2", "bert", "bert-untied", "qwen3", "gpt_neox",
                             "gpt_neox-sequential", "phi", "opt-post"})
        expect_same(reference(name), {});
}

TEST(Fusion, AHeadOfManyPartsGivesTheSame) {
    const std::int64_t row = 4 * open_model("gpt2-tiny").facts().vocabulary;
    expect_same("gpt2-tiny", {.head_logits = {row * 70}});
    const Graph graph = training_graph("gpt2-tiny", {.head_logits = {row * 70}});
    int heads = 0;
    for (const Node& node : graph.nodes()) {
        if (node.op->name != "linear_cross_entropy_gradient") continue;
        EXPECT_EQ(node.attributes.integer("rows"), 64);
        ++heads;
    }
    EXPECT_EQ(heads, 1);
}

TEST(Fusion, FindsWhatThereIsInGpt2) {
    const auto ops = operators_of(training_graph("gpt2-tiny", {}));
    EXPECT_EQ(ops.at("add_layer_norm"), 8); // all but the first of two a layer and the last
    EXPECT_EQ(ops.at("layer_norm"), 1);
    EXPECT_EQ(ops.at("layer_norm_gradient"), 9);
    EXPECT_EQ(ops.at("linear_cross_entropy_gradient"), 1);
    for (const char* gone : {"layer_norm_input_gradient", "layer_norm_weight_gradient", "cross_entropy"})
        EXPECT_FALSE(ops.contains(gone)) << gone;
}

TEST(Fusion, FindsWhatThereIsInLlama) {
    const Graph graph = training_graph("llama-tiny", {});
    const auto ops = operators_of(graph);
    const int layers = ops.at("gated");
    EXPECT_GE(layers, 2);
    EXPECT_EQ(ops.at("gated_gradient"), layers);
    EXPECT_EQ(ops.at("add_rms_norm"), 2 * layers);
    EXPECT_EQ(ops.at("rms_norm_gradient"), 2 * layers + 1);
    EXPECT_FALSE(ops.contains("linear_input_gradient+")); // of sums, only those of merged matmuls are left
    EXPECT_EQ(ops.at("linear"), 4 * layers);              // of seven and the head
    EXPECT_EQ(ops.at("linear_weight_gradient"), 4 * layers);
    EXPECT_EQ(ops.at("linear_input_gradient"), 4 * layers);
    EXPECT_EQ(ops.at("linear_cross_entropy_gradient"), 1);
    for (const char* gone : {"silu", "silu_gradient", "multiply"}) EXPECT_FALSE(ops.contains(gone)) << gone;
    EXPECT_EQ(graph.output("logits"), nullptr);
}

TEST(Fusion, FindsWhatThereIsInBertAndGemma) {
    const auto bert = operators_of(training_graph(reference("bert"), {}));
    EXPECT_FALSE(bert.contains("layer_norm_weight_gradient"));
    EXPECT_FALSE(bert.contains("bias_gradient") && bert.contains("cross_entropy"));
    EXPECT_EQ(bert.at("linear_cross_entropy_gradient"), 1);
    EXPECT_GT(bert.at("add_layer_norm"), 0);
    EXPECT_GT(bert.at("linear_input_gradient+"), 0); // the residual's with the merged projections'
    const auto gemma = operators_of(training_graph(reference("gemma"), {}));
    EXPECT_GT(gemma.at("gated"), 0);
    EXPECT_EQ(gemma.at("gated"), gemma.at("gated_gradient"));
    EXPECT_GT(gemma.at("add_rms_norm"), 0);
}

TEST(Fusion, IsLeftUndoneWhereItIsSwitchedOff) {
    const auto ops = operators_of(training_graph("llama-tiny", {.norm_weights = false, .head = false}));
    EXPECT_GT(ops.at("rms_norm_weight_gradient"), 0);
    EXPECT_EQ(ops.at("cross_entropy"), 1);
    EXPECT_GT(ops.at("gated"), 0);
    EXPECT_NE(training_graph("llama-tiny", {.head = false}).output("logits"), nullptr);
}

} // namespace
} // namespace tutti

// What is predicted of a rank's memory, held against the Program that it becomes.
#include "compile/graphs/step_graph.h"
#include "compile/memory_use.h"
#include "models/model.h"
#include "planner/strategies/baselines.h"
#include "planner/strategies/stages.h"
#include "support/searched.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti::planner::strategies {

using namespace compile;
using namespace models;
namespace {

nlohmann::json wide(const std::string& family) {
    if (family == "gpt2")
        return {{"architectures", {"GPT2LMHeadModel"}},
                {"model_type", "gpt2"},
                {"vocab_size", 512},
                {"n_positions", 128},
                {"n_embd", 256},
                {"n_layer", 24},
                {"n_head", 8},
                {"activation_function", "gelu_new"},
                {"attn_pdrop", 0.0},
                {"embd_pdrop", 0.0},
                {"resid_pdrop", 0.0},
                {"layer_norm_epsilon", 1e-5},
                {"tie_word_embeddings", false}};
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"vocab_size", 512},
            {"max_position_embeddings", 128},
            {"hidden_size", 256},
            {"intermediate_size", 768},
            {"num_hidden_layers", 24},
            {"num_attention_heads", 8},
            {"num_key_value_heads", 8},
            {"hidden_act", "silu"},
            {"rms_norm_eps", 1e-5},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
            {"tie_word_embeddings", false}};
}

// A rank's arena without kernels' workspace. What is kept for the backward is right to the byte; weights, gradients and
// optimizer states but for the padding of chunks; what comes and goes is told roughly.
void expect_as_predicted(const Model& model, const Searched& searched, const std::string& name,
                         const Solution& solution, Plan plan) {
    plan.strategies = searched.model.operator_strategies(solution);
    const Outcome predicted = searched.model.outcome(solution);
    const MemoryUse real = memory_use_of(model.graph, plan, 0);
    EXPECT_EQ(predicted.saved.count, real.slots.count) << name;
    const Bytes states = real.weights + real.gradients + real.optimizer;
    EXPECT_NEAR(static_cast<double>(predicted.states.count) / static_cast<double>(states.count), 1, 0.003) << name;
    EXPECT_NEAR(static_cast<double>(predicted.memory().count) / static_cast<double>(real.total().count), 1, 0.02)
        << name << ": " << to_string(predicted.memory()) << " predicted, " << to_string(real.total());
}

TEST(Memory, IsAsPredicted) {
    for (const std::string family : {"gpt2", "llama"})
        for (const int ranks : {4, 8}) {
            const Model model = ModelSource(wide(family), family).build({8, 128, DType::float32});
            const Searched searched(differentiated(model.graph, false), {ranks}, ranks);
            Plan plan;
            plan.model = model.architecture;
            plan.workload = {128, 8, 8};
            plan.mesh.tensor = ranks;
            const std::string of = fmt::format(" of {} on {}", family, ranks);
            expect_as_predicted(model, searched, "least" + of, searched.found.points.front().solution, plan);
            expect_as_predicted(model, searched, "fastest" + of, searched.found.points.back().solution, plan);
            expect_as_predicted(model, searched, "tensor parallelism" + of,
                                *tensor_parallelism(searched.model).solution, plan);
            expect_as_predicted(model, searched, "ZeRO 3" + of, *zero3(searched.model).solution, plan);
        }
}

} // namespace
} // namespace tutti::planner::strategies

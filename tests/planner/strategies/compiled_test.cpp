// What is chosen among the plans of a tensor group, held against Programs that are compiled for it.
#include "planner/strategies/compiled.h"

#include "compile/graphs/step_graph.h"
#include "compile/memory_use.h"
#include "models/model.h"
#include "support/searched.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace tutti::planner::strategies {

using namespace compile;
using namespace models;
namespace {

constexpr std::int64_t tokens = 32;

ModelSource small_model(const std::string& family, bool tied) {
    if (family == "gpt2")
        return {{{"architectures", {"GPT2LMHeadModel"}},
                 {"model_type", "gpt2"},
                 {"vocab_size", 512},
                 {"n_positions", tokens},
                 {"n_embd", 64},
                 {"n_layer", 3},
                 {"n_head", 8},
                 {"activation_function", "gelu_new"},
                 {"attn_pdrop", 0.0},
                 {"embd_pdrop", 0.0},
                 {"resid_pdrop", 0.0},
                 {"layer_norm_epsilon", 1e-5},
                 {"tie_word_embeddings", tied}},
                "a small model"};
    return {{{"architectures", {"LlamaForCausalLM"}},
             {"model_type", "llama"},
             {"vocab_size", 512},
             {"max_position_embeddings", tokens},
             {"hidden_size", 64},
             {"intermediate_size", 192},
             {"num_hidden_layers", 3},
             {"num_attention_heads", 8},
             {"num_key_value_heads", 8},
             {"hidden_act", "silu"},
             {"rms_norm_eps", 1e-5},
             {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
             {"tie_word_embeddings", tied}},
            "a small model"};
}

struct Compared {
    Model model;
    Plan one;
    Searched searched;
    std::vector<CompiledPlan> plans;

    Compared(const std::string& family, bool tied, int ranks, std::int64_t batch, DType dtype = DType::float32)
        : model(small_model(family, tied).build({batch, tokens, dtype})), one(plan_of(ranks, batch, dtype)),
          searched(differentiated(model.graph, false), {ranks}, ranks),
          plans(compiled_plans(searched.model, searched.found, model.graph, one)) {}

    Plan plan_of(int ranks, std::int64_t batch, DType dtype) const {
        Plan plan;
        plan.model = model.architecture;
        plan.workload = {tokens, batch, batch};
        plan.precision.compute = dtype;
        plan.mesh.tensor = ranks;
        return plan;
    }
    const CompiledPlan& named(const std::string& name) const {
        const auto found = std::ranges::find(plans, name, &CompiledPlan::name);
        if (found == plans.end()) throw std::runtime_error("there is no " + name);
        return *found;
    }
    Bytes compile(bool sequence_parallel) const {
        Plan plan = one;
        plan.sequence_parallel = sequence_parallel;
        return memory_use_of(model.graph, plan, 0).total();
    }
};

// Nothing that the list, people or the compiler would do has a smaller Program than what is chosen, memory first.
TEST(CompiledPlans, TheChosenOneIsNeverAboveAnyOther) {
    int misled = 0; // where the least redundancy alone would have chosen a larger one
    for (const char* family : {"gpt2", "llama"})
        for (const bool tied : {false, true})
            for (const int ranks : {2, 4, 8})
                for (const std::int64_t batch : {1, 8}) {
                    SCOPED_TRACE(fmt::format("{} {} {} x {}", family, tied, ranks, batch));
                    const Compared all(family, tied, ranks, batch);
                    const CompiledPlan* chosen = choose(all.plans, 0);
                    ASSERT_NE(chosen, nullptr);
                    EXPECT_EQ(memory_use_of(all.model.graph, chosen->plan, 0).total(), *chosen->program);
                    for (const CompiledPlan& plan : all.plans)
                        if (plan.program) {
                            EXPECT_LE(chosen->program->count, plan.program->count) << plan.name;
                        } else {
                            EXPECT_FALSE(plan.reason.empty()) << plan.name;
                        }
                    EXPECT_LE(*chosen->program, all.compile(true));
                    EXPECT_LE(*chosen->program, all.compile(false));
                    EXPECT_EQ(all.named(default_name).program, all.compile(true));
                    for (const char* name : {"tensor parallelism", "tensor and sequence parallelism"})
                        EXPECT_TRUE(all.named(name).program) << name << ": " << all.named(name).reason;
                    EXPECT_EQ(all.named("ZeRO 3").program.has_value(), batch >= ranks) << all.named("ZeRO 3").reason;
                    misled += *chosen->program < *all.plans.front().program ? 1 : 0;
                }
    EXPECT_GT(misled, 0);
}

TEST(CompiledPlans, MoreMemoryIsGivenForTime) {
    const Compared all("llama", false, 4, 8);
    Bytes before;
    double seconds = std::numeric_limits<double>::infinity();
    for (const double epsilon : {0.0, 0.1, 0.35, 1.0}) {
        const CompiledPlan* chosen = choose(all.plans, epsilon);
        ASSERT_NE(chosen, nullptr);
        EXPECT_GE(*chosen->program, before);
        if (chosen->predicted) {
            EXPECT_LE(chosen->predicted->time.count, seconds);
            seconds = chosen->predicted->time.count;
        }
        before = *chosen->program;
    }
    for (const CompiledPlan& plan : all.plans)
        if (plan.predicted && plan.program) {
            EXPECT_GE(plan.predicted->time.count, seconds) << plan.name;
        }
}

TEST(CompiledPlans, TheCapIsThatOfPrograms) {
    const Compared all("gpt2", false, 4, 2);
    const Bytes least = *least_of(all.plans)->program;
    EXPECT_EQ(choose(all.plans, 1, least - Bytes{1}), nullptr);
    const CompiledPlan *tight = choose(all.plans, 1, least), *free = choose(all.plans, 1);
    ASSERT_NE(tight, nullptr);
    EXPECT_EQ(*tight->program, least);
    EXPECT_GT(*free->program, least);
}

// A pipeline's stage has a slot for each micro-batch in flight.
TEST(CompiledPlans, MicroBatchesInFlightCount) {
    const Compared all("gpt2", false, 2, 2);
    ModelOptions options = Searched::options({2});
    options.in_flight = 3;
    const StrategyModel model(all.searched.step, all.searched.costs, options);
    const std::vector<CompiledPlan> flying = compiled_plans(model, all.searched.found, all.model.graph, all.one);
    const Bytes slots = memory_use_of(all.model.graph, all.one, 0).slots;
    const auto by_default = std::ranges::find(flying, default_name, &CompiledPlan::name);
    ASSERT_NE(by_default, flying.end());
    EXPECT_EQ(*by_default->program - *all.named(default_name).program, 2 * slots);
}

} // namespace
} // namespace tutti::planner::strategies

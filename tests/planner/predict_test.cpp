// The planner's model of a plan against a simulation of the Programs that the plan compiles to, at the same costs: what
// the model leaves out shows here, without any machine's noise.
#include "base/error.h"
#include "compile/compile.h"
#include "costs/profile.h"
#include "ops/operators.h"
#include "planner/joint.h"
#include "planner/predict.h"
#include "schedule/families.h"
#include "simulate/rank_simulation.h"
#include "support/temporary_folder.h"

namespace tutti {

using namespace compile;
using namespace costs;
using namespace models;
using namespace ops;
using namespace planner;
using namespace schedule;
using namespace sharding;
using namespace simulate;
namespace {

constexpr KernelSpeed kernels{.flops = 4e10, .bytes = 8e9, .launch = 2e-6};
constexpr LinkSpeed link{.latency = 3e-5, .bytes = 4e9, .reduced_bytes = 1.5e9, .gathered_bytes = 3e9};

nlohmann::json config_of(const char* model, int layers) {
    nlohmann::json config = open_model(model).config();
    config[config.contains("n_layer") ? "n_layer" : "num_hidden_layers"] = layers;
    config["vocab_size"] = 512;
    return config;
}

double communication_of(Collective what, std::int64_t bytes, int ranks) {
    Instruction one = communication_of(what == Collective::all_reduce   ? InstructionKind::all_reduce
                                       : what == Collective::all_gather ? InstructionKind::all_gather
                                                                        : InstructionKind::reduce_scatter,
                                       0);
    one.inputs = {{.address = {}, .type = {DType::float32, {bytes / 4}}, .strides = {1}}};
    return communication_seconds(one, ranks, link);
}

// What a machine with just these speeds would measure.
CostProfile profile_of(int ranks, double slowdown) {
    CostProfile profile;
    profile.slowdown = slowdown;
    profile.machine = {.device = "cpu", .model = "made up", .cores = 16, .threads = 1, .version = "1"};
    profile.ranks = ranks;
    profile.memory = {std::int64_t{1} << 34};
    profile.speed = kernels;
    for (Collective what : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
        for (int size = 2; size <= ranks; size *= 2)
            for (std::int64_t bytes : {1 << 13, 1 << 18, 1 << 24})
                profile.collectives.push_back({what, size, {bytes}, communication_of(what, bytes, size)});
    for (std::int64_t bytes : {1 << 10, 1 << 20})
        profile.messages.push_back({{bytes}, link.latency + static_cast<double>(bytes) / link.bytes});
    return profile;
}

struct ProfiledSetting {
    MeasuredCost costs;
    PlannerWorkload workload;
    ModelSource source;
    BlockChain chain;
    PlanModel model;

    explicit ProfiledSetting(const char* name, double slowdown = 1)
        : costs(profile_of(8, slowdown), all_operators()), workload{.sequence = 64,
                                                                    .global_batch = 32,
                                                                    .precision = {}},
          source(config_of(name, 4), name), chain(chain_of(source, 64, DType::float32)),
          model(chain, costs, workload, {.kept_free_share = 0, .kept_free = {0}}) {}

    Plan plan(PlanDecisions decisions, const char* family, int stages, bool again) {
        decisions.layout = usual_layout(costs.cluster(), decisions.mesh());
        decisions.schedule = {.family = family,
                              .ranks = decisions.pipe,
                              .micro_batches =
                                  static_cast<int>(model.micro_batches(decisions.data, decisions.micro_batch))};
        decisions.schedule.stages_per_rank = stages;
        const int count = resolve(decisions.schedule).stages();
        for (int stage = 1; stage < count; ++stage) decisions.cuts.push_back(stage * chain.blocks() / count);
        if (again)
            for (int stage = 0; stage < count; ++stage) {
                std::vector<int>& blocks = decisions.recompute.emplace_back();
                for (int block = stage * chain.blocks() / count; block < (stage + 1) * chain.blocks() / count; ++block)
                    blocks.push_back(block);
            }
        Plan plan = plan_of(model, decisions);
        plan.devices.reset();
        return plan;
    }

    double simulated(Plan plan) const {
        plan.fusion = FusionOptions{.head_logits = workload.head_logits};
        const std::int64_t built = plan.sub_pipeline ? plan.workload.micro_batch / 2 : plan.workload.micro_batch;
        const Model whole = source.build({built, workload.sequence, DType::float32});
        std::vector<Outline> outlines;
        for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
            const Compiled compiled = compile::compile(whole.graph, plan, rank);
            outlines.push_back(outline_of(compiled.program, rank, all_operators(), {}, kernels, link));
        }
        double time = 0;
        for (const SimulatedRank& rank : simulate::simulate(outlines)) time = std::max(time, rank.time);
        return time;
    }
};

struct Case {
    PlanDecisions decisions;
    const char* family = "1f1b";
    int stages = 0;
    bool again = false;
};

PlanDecisions decisions(Mesh mesh, std::int64_t micro_batch, int zero = 0, bool halves = false) {
    PlanDecisions made{.tensor_parallel = {.ranks = mesh.tensor, .sub_pipeline = halves}};
    made.pipe = mesh.pipe;
    made.data = mesh.data;
    made.micro_batch = micro_batch;
    made.zero = zero;
    return made;
}

std::vector<Case> cases() {
    return {
        {decisions({.data = 8}, 2)},
        {decisions({.data = 8}, 4)},
        {decisions({.data = 8}, 1, 1)},
        {decisions({.data = 8}, 2, 2)},
        {decisions({.data = 8}, 2, 3)},
        {decisions({.data = 8}, 2, 3), "1f1b", 0, true},
        {decisions({.pipe = 8}, 2)},
        {decisions({.pipe = 2, .data = 4}, 2), "1f1b", 0, true},
        {decisions({.pipe = 4, .data = 2}, 2), "interleaved", 2},
        {decisions({.pipe = 4, .data = 2}, 2), "zb-1p"},
        {decisions({.pipe = 4}, 4), "early-recompute", 0, true},
        {decisions({.data = 4, .tensor = 2}, 4)},
        {decisions({.data = 2, .tensor = 4}, 4), "1f1b", 0, true},
        {decisions({.pipe = 2, .data = 2, .tensor = 2}, 4)},
        {decisions({.data = 4, .tensor = 2}, 4, 0, true)},
        {decisions({.pipe = 2}, 4), "chimera"},
        {decisions({.pipe = 2}, 4, 2), "chimera"},
        {decisions({.pipe = 2}, 4, 3), "chimera"},
        {decisions({.pipe = 4, .data = 2}, 2, 1), "chimera"},
        {decisions({.pipe = 4, .data = 2}, 2, 3), "mixpipe"},
        {decisions({.pipe = 2, .data = 2}, 2), "dualpipe"},
    };
}

TEST(Predict, PlansThatCutOtherModelsAreRefused) {
    ProfiledSetting setting("gpt2");
    Plan plan = setting.plan(decisions({.pipe = 2}, 4), "1f1b", 0, false);
    for (int past : {setting.chain.blocks(), 100}) {
        plan.cuts = {past};
        EXPECT_ERROR(predict(setting.model, plan), "are growing numbers from 1 to");
    }
    plan.cuts.clear();
    EXPECT_ERROR(predict(setting.model, plan), "there are 0 cuts, which make 1 stage");
}

TEST(Predict, AgreesWithAWalkThroughThePrograms) {
    for (const char* name : {"gpt2", "llama-1b"}) {
        ProfiledSetting setting(name);
        for (const Case& one : cases()) {
            const Plan plan = setting.plan(one.decisions, one.family, one.stages, one.again);
            const double predicted = predict(setting.model, plan).time, simulated = setting.simulated(plan);
            // Ranks of a schedule with model replicas wait for each other where they gather, too.
            const bool bound = plan.zero >= 2 && plan.schedule && plan.schedule->schedule.parameters.model_replicas > 1;
            EXPECT_NEAR(predicted / simulated, 1, bound ? 0.05 : 0.025)
                << name << ", " << describe(decisions_of(setting.model, plan)) << ": " << predicted << " and "
                << simulated;
        }
    }
}

TEST(Predict, ReplicasWaitForTheSlowestRankAndPipelinesForAShareOfThat) {
    ProfiledSetting even("gpt2"), uneven("gpt2", 1.4);
    auto growth = [&](Mesh mesh) {
        const Plan plan = even.plan(decisions(mesh, 2), "1f1b", 0, false);
        return predict(uneven.model, plan).terms.compute / predict(even.model, plan).terms.compute;
    };
    EXPECT_NEAR(growth({.data = 8}), 1.4, 1e-9);
    EXPECT_NEAR(growth({.pipe = 2, .data = 4}), 1.2, 1e-9);
    EXPECT_NEAR(growth({.pipe = 8}), 1.05, 1e-9);
}

TEST(Predict, RefusesWhatItHasNoWordsFor) {
    ProfiledSetting setting("gpt2");
    Plan plan = setting.plan(decisions({.data = 8}, 2), "1f1b", 0, false);
    EXPECT_EQ(rank_memory(predict(setting.model, plan), plan.mesh).size(), 8u);
    Plan limited = plan;
    limited.device_memory = {1 << 20};
    EXPECT_THROW(predict(setting.model, limited), Error);
    plan.mesh.data = 16;
    EXPECT_THROW(predict(setting.model, plan), Error);
}

} // namespace
} // namespace tutti

#include "resolve/run_plan.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "formats/json.h"
#include "formats/text_file.h"
#include "offload/chunk_size.h"
#include "run/layout.h"

#include <algorithm>

namespace tutti::resolve {
namespace {

// What float64 keeps is float64, whatever is asked of it.
Precision decided_types(const Precision& asked) {
    if (asked.compute != DType::float64) return asked;
    return {DType::float64, DType::float64, DType::float64, DType::float64};
}

std::int64_t decided_chunk(const run::RunConfig& config, const models::Model& model) {
    const sharding::Mesh mesh = run::mesh_of(config);
    if (config.chunk_elements > 0) return config.chunk_elements;
    if (config.device_memory.count > 0)
        return std::max(offload::best_chunk_fit(model.graph).capacity / mesh.tensor, memory::chunk_alignment);
    return mesh.data > 1 || config.model_replicas > 1 ? small_chunk : large_chunk;
}

offload::UpdateTime decided_updates(const run::RunConfig& config) {
    const bool may_be_early = config.clip == 0 && config.device_memory.count > 0 && config.dump_step0.empty();
    const bool in_backward = config.updates == offload::UpdateTime::automatic && may_be_early;
    return in_backward ? offload::UpdateTime::backward : config.updates;
}

} // namespace

Plan make_plan(const run::RunConfig& config, const DataShape& data, const models::Model& model, Bytes memory,
               const OffloadChoice& offload) {
    Plan plan;
    plan.settings() = config.settings();
    plan.model = model.architecture;
    plan.parameters = model.graph.stored_elements();
    plan.workload = {.sequence = data.sequence,
                     .global_batch = data.global_batch,
                     .micro_batch = run::micro_batch_of(config, data.global_batch)};
    plan.precision = decided_types(config.precision);
    plan.chunk_elements = decided_chunk(config, model);
    plan.updates = decided_updates(config);
    plan.mesh = run::mesh_of(config);
    check_division(plan.workload, plan.mesh, plan.sub_pipeline);
    std::optional<schedule::ScheduleParameters> asked;
    if (run::has_schedule(config)) asked = run::schedule_parameters(config, plan.micro_batches());
    const Bytes usable = config.device_memory.count > 0 ? std::min(memory, config.device_memory) : memory;
    plan_pipeline(plan, model.graph, asked, config.recompute, usable, offload);
    check(plan);
    return plan;
}

bool completes(Plan complete, const Plan& plan) {
    if (plan.parameters == 0) complete.parameters = 0;
    if (!plan.predicted) complete.predicted.reset();
    if (!plan.fusion) complete.fusion.reset();
    if (!plan.residency) complete.residency.reset();
    complete.timed_kernels = plan.timed_kernels;
    return complete == plan;
}

Plan for_dump(Plan plan) {
    plan.gradients_over_weights = false;
    if (!plan.fusion) plan.fusion = fusion_of(plan);
    plan.fusion->head = false;
    return plan;
}

Plan read_plan(const std::string& file) { return parse_plan(formats::read_text_file(file, "a plan", 64 << 20), file); }

std::optional<Plan> followed_plan(const run::RunConfig& config, const Plan* given) {
    if (given != nullptr) return *given;
    return config.plan.empty() ? std::nullopt : std::optional(read_plan(config.plan));
}

run::RunConfig with_plan(run::RunConfig config, const Plan& plan) {
    const Precision asked = config.precision;
    config.settings() = plan.settings();
    if (plan.precision.compute == DType::float64) { // which keeps everything in float64
        config.precision = asked;
        config.precision.compute = DType::float64;
    }
    config.mesh = plan.mesh;
    config.places = places_of(plan);
    const schedule::ScheduleParameters parameters =
        plan.schedule ? plan.schedule->schedule.parameters : schedule::ScheduleParameters{.family = ""};
    config.schedule = parameters.family;
    config.stages_per_rank = parameters.stages_per_rank;
    config.model_replicas = parameters.model_replicas;
    config.in_flight = parameters.in_flight;
    config.recompute = {}; // the plan names the blocks itself, here and below
    config.offload_activations = run::ActivationOffload::none;
    return config;
}

models::ModelSource open_planned_model(const run::RunConfig& config, const Plan* followed) {
    models::ModelSource source = models::open_model(config.model);
    if (config.plan.empty() || followed == nullptr) return source;
    const Plan& plan = *followed;
    const models::ModelFacts& facts = source.facts();
    if (plan.model == Plan::no_model)
        fail("{} holds a schedule alone, for tutti simulate, and no plan of a model; to train with that schedule, give "
             "--schedule {} in place of --plan",
             config.plan, plan.schedule ? plan.schedule->schedule.parameters.family : "NAME");
    if (plan.model != facts.architecture)
        fail("{} is a plan for another model: for a {}, and {} is a {}", config.plan, plan.model,
             formats::in_quotes(config.model), facts.architecture);
    if (facts.max_sequence > 0 && plan.workload.sequence > facts.max_sequence)
        fail("{} is a plan for another model: for sequences of {}, and {} has no more than {}", config.plan,
             counted(plan.workload.sequence, "token"), formats::in_quotes(config.model),
             counted(facts.max_sequence, "position"));
    return source;
}

void check_followed(const Plan& plan, const run::RunConfig& config, const DataShape& data, const models::Model& model) {
    if (plan.workload.sequence != data.sequence || plan.workload.global_batch != data.global_batch)
        fail("{} is a plan for {} sequences of {} tokens, and the data gives {} of {}", config.plan,
             plan.workload.global_batch, plan.workload.sequence, data.global_batch, data.sequence);
    if (const std::int64_t parameters = model.graph.stored_elements();
        plan.parameters > 0 && plan.parameters != parameters)
        fail("{} is a plan for another model: for one of {} parameters, and {} has {}", config.plan, plan.parameters,
             formats::in_quotes(config.model), parameters);
    try {
        check_blocks(plan, narrow<int>(find_blocks(model.graph).size()));
        if (plan.strategies) sharding::check(*plan.strategies, model.graph);
    } catch (const Error& error) {
        fail("{} does not fit {}, and was probably made for another model: {}", config.plan,
             formats::in_quotes(config.model), error.what());
    }
    if (plan.updates == offload::UpdateTime::backward && config.clip > 0)
        fail("{} is a plan that updates during the backward, where there is no norm to clip by, and clip is {}: --clip "
             "0 never clips",
             config.plan, config.clip);
}

} // namespace tutti::resolve

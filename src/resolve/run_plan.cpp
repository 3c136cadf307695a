#include "resolve/run_plan.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/json.h"
#include "formats/text_file.h"
#include "offload/chunk_size.h"
#include "run/layout.h"

#include <algorithm>

namespace tutti::resolve {
namespace {

Plan plan_in_file(const run::RunConfig& config, const DataShape& data, const models::Model& model) {
    Plan plan = read_plan(config.plan);
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
    if (!config.dump_step0.empty()) plan.gradients_over_weights = false;
    return plan;
}

} // namespace

Plan make_plan(const run::RunConfig& config, const DataShape& data, const models::Model& model, Bytes memory,
               const OffloadChoice& offload) {
    if (!config.plan.empty()) return plan_in_file(config, data, model);
    Plan plan;
    plan.model = model.architecture;
    plan.parameters = model.graph.stored_elements();
    plan.device = config.device;
    plan.workload = {.sequence = data.sequence,
                     .global_batch = data.global_batch,
                     .micro_batch = run::micro_batch_of(config, data.global_batch)};
    if (config.dtype == DType::float64)
        plan.precision = {DType::float64, DType::float64, DType::float64, DType::float64};
    else
        plan.precision = {config.dtype, config.gradients, config.master, config.moments};
    const bool replicas = run::mesh_of(config).data > 1 || config.copies > 1;
    if (config.chunk_elements > 0)
        plan.chunk_elements = config.chunk_elements;
    else if (config.device_memory.count > 0)
        plan.chunk_elements = std::max(offload::best_chunk_fit(model.graph).capacity / run::mesh_of(config).tensor,
                                       memory::chunk_alignment);
    else if (replicas)
        plan.chunk_elements = small_chunk; // alone, few large ones are the fewest launches
    plan.split_backward = config.split_backward;
    plan.mesh = run::mesh_of(config);
    plan.zero = config.zero;
    plan.device_memory = config.device_memory;
    plan.host_memory = config.host_memory;
    plan.optimizer_placement = config.optimizer_placement;
    plan.eviction = config.eviction;
    plan.prefetch = config.prefetch;
    const bool may_be_early = config.clip == 0 && config.device_memory.count > 0 && config.dump_step0.empty();
    const bool in_backward = config.updates == offload::UpdateTime::automatic && may_be_early;
    plan.updates = in_backward ? offload::UpdateTime::backward : config.updates;
    plan.gradients_over_weights = config.over_weights && config.dump_step0.empty(); // a dump holds gradients
    plan.sequence_parallel = config.sequence_parallel;
    plan.sub_pipeline = config.sub_pipeline;
    check_division(plan.workload, plan.mesh, plan.sub_pipeline);
    std::optional<schedule::ScheduleParameters> asked;
    if (run::has_schedule(config)) asked = run::schedule_parameters(config, plan.micro_batches());
    const Bytes usable = config.device_memory.count > 0 ? std::min(memory, config.device_memory) : memory;
    plan_pipeline(plan, model.graph, asked, config.recompute, usable, offload);
    check(plan);
    return plan;
}

models::ModelSource open_planned_model(const run::RunConfig& config) {
    models::ModelSource source = models::open_model(config.model);
    if (config.plan.empty()) return source;
    const Plan plan = read_plan(config.plan);
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

Plan read_plan(const std::string& file) { return parse_plan(formats::read_text_file(file, "a plan", 64 << 20), file); }

run::RunConfig with_plan(run::RunConfig config, const Plan& plan) {
    config.sequence = plan.workload.sequence;
    config.global_batch = plan.workload.global_batch;
    config.micro_batch = plan.workload.micro_batch;
    config.device = plan.device;
    config.dtype = plan.precision.compute;
    if (config.dtype != DType::float64) { // which keeps everything in float64
        config.gradients = plan.precision.gradients;
        config.master = plan.precision.master;
        config.moments = plan.precision.moments;
    }
    config.chunk_elements = plan.chunk_elements;
    config.split_backward = plan.split_backward;
    config.mesh = plan.mesh;
    config.places = places_of(plan);
    config.zero = plan.zero.stage();
    config.device_memory = plan.device_memory;
    config.host_memory = plan.host_memory;
    config.optimizer_placement = plan.optimizer_placement;
    config.eviction = plan.eviction;
    config.prefetch = plan.prefetch;
    config.updates = plan.updates;
    config.over_weights = plan.gradients_over_weights;
    config.sequence_parallel = plan.sequence_parallel;
    config.sub_pipeline = plan.sub_pipeline;
    const schedule::ScheduleParameters parameters =
        plan.schedule ? plan.schedule->schedule.parameters : schedule::ScheduleParameters{.family = ""};
    config.schedule = parameters.family;
    config.stages_per_rank = parameters.stages_per_rank;
    config.copies = parameters.copies;
    config.in_flight = parameters.in_flight;
    config.recompute = {}; // the plan names the blocks itself, here and below
    config.offload_activations = run::ActivationOffload::none;
    return config;
}

} // namespace tutti::resolve

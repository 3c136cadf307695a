#include "train/run_plan.h"

#include "base/error.h"
#include "base/file.h"
#include "compile/stages.h"
#include "formats/json.h"
#include "schedule/families.h"
#include "train/layout.h"

namespace tutti {
namespace {

Plan plan_in_file(const RunConfig& config, const OpenedData& data, const ModelFacts& facts) {
    Plan plan = read_plan(config.plan);
    if (plan.model != facts.architecture)
        fail("{} is a plan for {}, and {} is a {}", config.plan, in_quotes(plan.model), in_quotes(config.model),
             facts.architecture);
    if (plan.workload.sequence != data.sequence || plan.workload.global_batch != data.global_batch)
        fail("{} is a plan for {} sequences of {} tokens, and the data gives {} of {}", config.plan,
             plan.workload.global_batch, plan.workload.sequence, data.global_batch, data.sequence);
    return plan;
}

// Of a micro-batch, in seconds of an average device, and bytes. Gradients of inputs and of weights take a forward each.
Costs stage_costs(std::span<const Block> blocks, std::span<const int> cuts) {
    Costs costs;
    costs.stages.clear();
    for (std::size_t stage = 0; stage <= cuts.size(); ++stage) {
        const std::size_t first = stage == 0 ? 0 : static_cast<std::size_t>(cuts[stage - 1]);
        const std::size_t end = stage < cuts.size() ? static_cast<std::size_t>(cuts[stage]) : blocks.size();
        double forward = 0;
        Bytes activations;
        for (std::size_t b = first; b < end; ++b) {
            forward += time_of(blocks[b], {}).count / 3;
            activations += blocks[b].activations;
        }
        const auto held = static_cast<double>(activations.count);
        costs.stages.push_back({.forward = forward,
                                .backward = forward,
                                .weight_gradient = forward,
                                .activation = held,
                                .kept_after_backward = held,
                                .boundary = static_cast<double>(blocks[first].boundary.count)});
    }
    return costs;
}

} // namespace

Plan make_plan(const RunConfig& config, const OpenedData& data, const Model& model) {
    if (!config.plan.empty()) return plan_in_file(config, data, model);
    Plan plan;
    plan.model = model.architecture;
    plan.device = config.device;
    plan.workload = {.sequence = data.sequence,
                     .global_batch = data.global_batch,
                     .micro_batch = micro_batch_of(config, data.global_batch)};
    if (config.dtype == DType::float64)
        plan.precision = {DType::float64, DType::float64, DType::float64, DType::float64};
    else
        plan.precision = {.compute = config.dtype, .master = config.master, .moments = config.moments};
    plan.chunk_elements = config.chunk_elements;
    plan.split_backward = config.split_backward;
    plan.mesh = mesh_of(config);
    plan.zero = config.zero;
    plan.sequence_parallel = config.sequence_parallel;
    plan.sub_pipeline = config.sub_pipeline;
    check_division(plan.workload, plan.mesh, plan.sub_pipeline);
    if (has_schedule(config)) {
        const ScheduleParameters parameters = resolve(schedule_parameters(config, plan.micro_batches()));
        const std::vector<Block> blocks = find_blocks(model.graph);
        plan.cuts = balance(blocks, parameters.stages());
        const Costs costs = stage_costs(blocks, plan.cuts);
        plan.schedule = PlannedSchedule{make_schedule(parameters, costs), costs};
    }
    check(plan);
    return plan;
}

Plan read_plan(const std::string& file) {
    constexpr std::uint64_t largest = 64 << 20;
    if (const InputFile opened(file); opened.size() > largest)
        fail("{} holds {} bytes; a plan holds at most {}", file, opened.size(), largest);
    return parse_plan(read_text(file), file);
}

RunConfig with_plan(RunConfig config, const Plan& plan) {
    config.sequence = plan.workload.sequence;
    config.global_batch = plan.workload.global_batch;
    config.micro_batch = plan.workload.micro_batch;
    config.device = plan.device;
    config.dtype = plan.precision.compute;
    if (config.dtype != DType::float64) { // which keeps everything in float64
        config.master = plan.precision.master;
        config.moments = plan.precision.moments;
    }
    config.chunk_elements = plan.chunk_elements;
    config.split_backward = plan.split_backward;
    config.mesh = plan.mesh;
    config.zero = plan.zero;
    config.sequence_parallel = plan.sequence_parallel;
    config.sub_pipeline = plan.sub_pipeline;
    const ScheduleParameters parameters =
        plan.schedule ? plan.schedule->schedule.parameters : ScheduleParameters{.family = ""};
    config.schedule = parameters.family;
    config.stages_per_rank = parameters.stages_per_rank;
    config.copies = parameters.copies;
    config.in_flight = parameters.in_flight;
    config.recompute = {}; // the plan names the blocks itself
    return config;
}

} // namespace tutti

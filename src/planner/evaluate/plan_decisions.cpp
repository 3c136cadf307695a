// A plan's decisions in words, and as the Plan of a training run.
#include "planner/evaluate/plan_model.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti::planner {

std::string describe(const PlanDecisions& decisions, int blocks) {
    const schedule::ScheduleParameters& p = decisions.schedule;
    std::string text = sharding::to_string(decisions.mesh());
    if (decisions.pipe > 1) {
        text += ", " + p.family;
        if (p.stages_per_rank > 1) text += fmt::format(" x{}", p.stages_per_rank);
        if (follows_costs(p.family) && p.in_flight > 0) text += fmt::format(" K={}", p.in_flight);
    }
    text += fmt::format(", micro-batch {}", decisions.micro_batch);
    if (decisions.zero.shards_states()) text += fmt::format(", ZeRO {}", decisions.zero.stage());
    std::size_t again = 0;
    for (const auto& stage : decisions.recompute) again += stage.size();
    if (again > 0)
        text += fmt::format(", {}{} blocks recomputed", again, blocks > 0 ? fmt::format(" of {}", blocks) : "");
    if (decisions.tensor_parallel.ranks > 1 && !decisions.tensor_parallel.sequence_parallel) text += ", norms whole";
    if (decisions.tensor_parallel.strategies > 0)
        text += fmt::format(", strategies {} of the list", decisions.tensor_parallel.strategies);
    if (decisions.tensor_parallel.sub_pipeline) text += ", in halves";
    if (decisions.offload) text += ", offloaded";
    return text;
}

Plan plan_of(PlanModel& model, const PlanDecisions& decisions) {
    const PlannerWorkload& workload = model.workload();
    Plan plan;
    plan.model = model.chain().model;
    plan.parameters = model.chain().all_parameters;
    plan.device = model.cluster().kinds.front().device.run_device;
    plan.workload = {workload.sequence, workload.global_batch, decisions.micro_batch};
    plan.precision = workload.precision;
    plan.mesh = decisions.mesh();
    if (decisions.data > 1 || decisions.schedule.model_replicas > 1) plan.chunk_elements = workload.chunk_elements;
    plan.zero = decisions.zero;
    plan.gradients_over_weights = workload.over_weights;
    plan.sequence_parallel = decisions.tensor_parallel.sequence_parallel;
    plan.sub_pipeline = decisions.tensor_parallel.sub_pipeline;
    if (decisions.tensor_parallel.strategies > 0)
        plan.strategies = model.segments().strategies(decisions.tensor_parallel.strategies);
    plan.cuts = decisions.cuts;
    plan.devices = planned_devices(model.cluster(), plan.mesh, decisions.layout);
    const PlacedRanks placed = place_ranks(model.cluster(), decisions.mesh(), decisions.layout);
    if (decisions.offload) plan.device_memory = model.offload_room(placed);
    const bool again = std::ranges::any_of(decisions.recompute, [](const auto& blocks) { return !blocks.empty(); });
    if (again) plan.recompute = decisions.recompute;
    if (decisions.stages() > 1) {
        PlanDecisions resolved = decisions;
        resolved.schedule = schedule::resolve(decisions.schedule);
        const schedule::Costs costs = model.costs_of(resolved, placed, style_of(resolved.schedule));
        plan.schedule = PlannedSchedule{schedule::make_schedule(decisions.schedule, costs), costs};
    }
    check(plan);
    return plan;
}

} // namespace tutti::planner

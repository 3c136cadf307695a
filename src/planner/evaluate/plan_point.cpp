// A point in words, and as the Plan of a training run.
#include "planner/evaluate/plan_model.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti::planner {

std::string describe(const PlanPoint& point, int blocks) {
    const schedule::ScheduleParameters& p = point.schedule;
    std::string text = sharding::to_string(point.mesh());
    if (point.pipe > 1) {
        text += ", " + p.family;
        if (p.stages_per_rank > 1) text += fmt::format(" x{}", p.stages_per_rank);
        if (follows_costs(p.family) && p.in_flight > 0) text += fmt::format(" K={}", p.in_flight);
    }
    text += fmt::format(", micro-batch {}", point.micro_batch);
    if (point.zero.shards_states()) text += fmt::format(", ZeRO {}", point.zero.stage());
    std::size_t again = 0;
    for (const auto& stage : point.recompute) again += stage.size();
    if (again > 0)
        text += fmt::format(", {}{} blocks recomputed", again, blocks > 0 ? fmt::format(" of {}", blocks) : "");
    if (point.strategies.tensor > 1 && !point.strategies.sequence_parallel) text += ", norms whole";
    if (point.strategies.listed > 0) text += fmt::format(", strategies {} of the list", point.strategies.listed);
    if (point.strategies.sub_pipeline) text += ", in halves";
    if (point.offload) text += ", offloaded";
    return text;
}

Plan plan_of(PlanModel& model, const PlanPoint& point) {
    const PlannerWorkload& workload = model.workload();
    Plan plan;
    plan.model = model.chain().model;
    plan.parameters = model.chain().all_parameters;
    plan.device = model.cluster().kinds.front().device.run_device;
    plan.workload = {workload.sequence, workload.global_batch, point.micro_batch};
    plan.precision = workload.precision;
    plan.mesh = point.mesh();
    if (point.data > 1 || point.schedule.copies > 1) plan.chunk_elements = workload.chunk_elements;
    plan.zero = point.zero;
    plan.gradients_over_weights = workload.over_weights;
    plan.sequence_parallel = point.strategies.sequence_parallel;
    plan.sub_pipeline = point.strategies.sub_pipeline;
    if (point.strategies.listed > 0) plan.strategies = model.segments().listed(point.strategies.listed);
    plan.cuts = point.cuts;
    plan.devices = planned_devices(model.cluster(), plan.mesh, point.layout);
    const LaidOut out = lay_out(model.cluster(), point.mesh(), point.layout);
    if (point.offload) plan.device_memory = model.offload_room(out);
    const bool again = std::ranges::any_of(point.recompute, [](const auto& blocks) { return !blocks.empty(); });
    if (again) plan.recompute = point.recompute;
    if (point.stages() > 1) {
        PlanPoint resolved = point;
        resolved.schedule = schedule::resolve(point.schedule);
        const schedule::Costs costs = model.costs_of(resolved, out, style_of(resolved.schedule));
        plan.schedule = PlannedSchedule{schedule::make_schedule(point.schedule, costs), costs};
    }
    check(plan);
    return plan;
}

} // namespace tutti::planner

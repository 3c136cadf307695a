#include "planner/predict.h"

#include "base/counted.h"
#include "base/error.h"
#include "planner/offload_search.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti::planner {

namespace {

// Model data that leaves the device is evaluated as the search has it leave.
bool offloads(const PlanModel& model, const Plan& plan, const PlanDecisions& decisions) {
    if (std::ranges::any_of(plan.offload, [](const std::vector<int>& blocks) { return !blocks.empty(); }))
        fail("the plan has activations leave the device, and what that takes is decided when it runs: a plan without "
             "offload can be evaluated");
    if (plan.device_memory.count == 0) return false;
    const Bytes room = model.offload_room(place_ranks(model.cluster(), decisions.mesh(), decisions.layout));
    if (plan.device_memory != room)
        fail("the plan keeps its devices to {} ({} bytes), and on this cluster only a limit of {} ({} bytes) can be "
             "evaluated: that is what libraries leave of a device",
             to_string(plan.device_memory), plan.device_memory.count, to_string(room), room.count);
    return true;
}

} // namespace

PlanDecisions decisions_of(PlanModel& model, const Plan& plan) {
    if (plan.mesh.ranks() > model.cluster().device_count())
        fail("the plan is for {}, and there {} {}", counted(plan.mesh.ranks(), "rank"),
             model.cluster().device_count() == 1 ? "is" : "are", counted(model.cluster().device_count(), "device"));
    check_blocks(plan, model.chain().blocks());
    PlanDecisions decisions{.tensor_parallel = {.ranks = plan.mesh.tensor,
                                                .sequence_parallel = plan.sequence_parallel,
                                                .sub_pipeline = plan.sub_pipeline},
                            .pipe = plan.mesh.pipe,
                            .data = plan.mesh.data,
                            .micro_batch = plan.workload.micro_batch,
                            .zero = plan.zero,
                            .cuts = plan.cuts,
                            .recompute = plan.recompute,
                            .layout = plan.devices ? layout_of(model.cluster(), plan.mesh, *plan.devices)
                                                   : usual_layout(model.cluster(), plan.mesh)};
    if (plan.strategies) decisions.tensor_parallel.strategies = model.segments().add_strategies(*plan.strategies);
    decisions.offload = offloads(model, plan, decisions);
    if (plan.schedule)
        decisions.schedule = plan.schedule->schedule.parameters;
    else
        decisions.schedule =
            schedule::resolve({.family = "1f1b", .ranks = 1, .micro_batches = static_cast<int>(plan.micro_batches())});
    return decisions;
}

PlanCost predict(PlanModel& model, const Plan& plan) {
    const PlanDecisions decisions = decisions_of(model, plan);
    const PlacedRanks placed = place_ranks(model.cluster(), decisions.mesh(), decisions.layout);
    ReadySchedule ready(plan.schedule ? plan.schedule->schedule
                                      : schedule::make_schedule(decisions.schedule, schedule::StageCosts{}));
    if (decisions.offload)
        if (std::optional<PlanCost> cost = evaluate_offloaded(model, decisions, placed, ready)) return std::move(*cost);
    return model.evaluate(decisions, placed, ready); // everything stays, or has no room even so
}

Prediction prediction_of(const PlanCost& cost) {
    Prediction prediction{.step = {cost.time}};
    for (const RankBytes& rank : cost.ranks)
        prediction.memory.push_back({static_cast<std::int64_t>(rank.total() - rank.kept_free)});
    return prediction;
}

std::vector<Bytes> rank_memory(const PlanCost& cost, const sharding::Mesh& mesh) {
    std::vector<Bytes> ranks;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const RankBytes& bytes = cost.ranks[static_cast<std::size_t>(mesh.place_of(rank).pipe)];
        ranks.push_back({static_cast<std::int64_t>(bytes.total())});
    }
    return ranks;
}

} // namespace tutti::planner

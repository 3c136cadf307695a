#include "planner/predict.h"

#include "base/counted.h"
#include "base/error.h"
#include "schedule/families.h"

namespace tutti {

PlanPoint point_of(const PlanModel& model, const Plan& plan) {
    if (plan.device_memory.count > 0)
        fail("the plan keeps the device to {}; what such a plan takes depends on copies that are decided when it runs",
             to_string(plan.device_memory));
    if (plan.mesh.ranks() > model.cluster().device_count())
        fail("the plan is for {}, and there {} {}", counted(plan.mesh.ranks(), "rank"),
             model.cluster().device_count() == 1 ? "is" : "are", counted(model.cluster().device_count(), "device"));
    check_blocks(plan, model.chain().blocks());
    PlanPoint point{.strategies = {.tensor = plan.mesh.tensor,
                                   .sequence_parallel = plan.sequence_parallel,
                                   .sub_pipeline = plan.sub_pipeline},
                    .pipe = plan.mesh.pipe,
                    .data = plan.mesh.data,
                    .micro_batch = plan.workload.micro_batch,
                    .zero = plan.zero,
                    .cuts = plan.cuts,
                    .recompute = plan.recompute,
                    .layout = usual_layout(model.cluster(), plan.mesh)};
    if (plan.schedule)
        point.schedule = plan.schedule->schedule.parameters;
    else
        point.schedule =
            resolve({.family = "1f1b", .ranks = 1, .micro_batches = static_cast<int>(plan.micro_batches())});
    return point;
}

PlanCost predict(PlanModel& model, const Plan& plan) {
    const PlanPoint point = point_of(model, plan);
    const LaidOut out = lay_out(model.cluster(), point.mesh(), point.layout);
    ReadySchedule ready(plan.schedule ? plan.schedule->schedule : make_schedule(point.schedule, StageCosts{}));
    return model.evaluate(point, out, ready);
}

Prediction prediction_of(const PlanCost& cost) {
    Prediction prediction{.step = {cost.time}};
    for (const RankBytes& rank : cost.ranks) prediction.memory.push_back({static_cast<std::int64_t>(rank.total())});
    return prediction;
}

std::vector<Bytes> rank_memory(const PlanCost& cost, const Mesh& mesh) {
    std::vector<Bytes> ranks;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const RankBytes& bytes = cost.ranks[static_cast<std::size_t>(mesh.place_of(rank).pipe)];
        ranks.push_back({static_cast<std::int64_t>(bytes.total())});
    }
    return ranks;
}

} // namespace tutti

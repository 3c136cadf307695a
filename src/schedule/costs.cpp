#include "schedule/costs.h"

#include "base/error.h"
#include "base/limits.h"

namespace tutti::schedule {

double Costs::edge(int replica, int stage) const {
    if (communication.size() == 1) return communication[0];
    const std::size_t boundaries = stages.size() - 1;
    const std::size_t at = static_cast<std::size_t>(stage);
    return communication[communication.size() == boundaries ? at : static_cast<std::size_t>(replica) * boundaries + at];
}

Costs uniform_costs(const ScheduleParameters& resolved, const StageCosts& share, double communication) {
    const double part = 1.0 / resolved.stages_per_rank;
    StageCosts stage = share;
    for (double* cost : {&stage.forward, &stage.backward, &stage.weight_gradient, &stage.recompute, &stage.activation,
                         &stage.kept_after_backward, &stage.boundary, &stage.synchronise, &stage.update})
        *cost *= part;
    return {std::vector<StageCosts>(static_cast<std::size_t>(resolved.stages()), stage), {communication}, false};
}

void check(const Costs& costs, const ScheduleParameters& resolved) {
    const auto stages = static_cast<std::size_t>(resolved.stages());
    if (costs.stages.size() != stages)
        fail("there are costs of {} stages, but {} ranks with {} stages each make {}", costs.stages.size(),
             resolved.ranks, resolved.stages_per_rank, stages);
    const std::size_t edges = costs.communication.size();
    const auto model_replicas = static_cast<std::size_t>(resolved.model_replicas);
    if (edges != 1 && edges != stages - 1 && edges != model_replicas * (stages - 1))
        fail("there are {} communication costs; {} stages take 1 or {}{}", edges, stages, stages - 1,
             model_replicas > 1
                 ? fmt::format(" or, for {} model replicas, {}", model_replicas, model_replicas * (stages - 1))
                 : "");
    auto check_one = [](double cost, const char* name, std::size_t stage) {
        if (!limits::cost.hold(cost))
            fail("the {} cost of stage {} is {}; it has to be {}", name, stage, cost, limits::cost.text());
    };
    for (std::size_t s = 0; s < stages; ++s) {
        const StageCosts& stage = costs.stages[s];
        check_one(stage.forward, "forward", s);
        check_one(stage.backward, "backward", s);
        check_one(stage.weight_gradient, "weight gradient", s);
        check_one(stage.recompute, "recompute", s);
        check_one(stage.activation, "activation", s);
        check_one(stage.kept_after_backward, "kept-after-backward", s);
        check_one(stage.boundary, "boundary", s);
        check_one(stage.synchronise, "synchronisation", s);
        check_one(stage.update, "update", s);
        if (stage.kept_after_backward > stage.activation)
            fail("stage {} keeps {} after its backward; it can be at most its activations, {}", s,
                 stage.kept_after_backward, stage.activation);
        if (stage.boundary > stage.activation)
            fail("stage {} has an input of {}; it can be at most its activations, {}", s, stage.boundary,
                 stage.activation);
    }
    for (std::size_t e = 0; e < edges; ++e) check_one(costs.communication[e], "communication", e);
}

} // namespace tutti::schedule

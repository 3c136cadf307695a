#include "train/session/doubts.h"

#include "run/layout.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti::train {
namespace {

// With two pipe ranks, of as many ranks where that is possible.
sharding::Mesh with_pipe(sharding::Mesh mesh) {
    mesh.pipe = 2;
    if (mesh.data % 2 == 0) mesh.data /= 2;
    return mesh;
}

bool recomputes_early(const schedule::ScheduleParameters& parameters) {
    return schedule::find_family(parameters.family).recomputes_early ||
           std::ranges::find(parameters.recompute, schedule::Recompute::early) != parameters.recompute.end();
}

bool recomputes_nothing(const Plan& plan) {
    return std::ranges::all_of(plan.recompute, [](const std::vector<int>& blocks) { return blocks.empty(); });
}

} // namespace

std::vector<std::string> doubts_about(const run::RunConfig& config, const Plan& plan, const models::ModelFacts& facts) {
    std::vector<std::string> doubts;
    if (config.warmup > config.steps)
        doubts.push_back(fmt::format("warmup is {} and steps is {}: the learning rate never rises to lr, which is {}",
                                     config.warmup, config.steps, config.lr));
    if (config.mask_token >= 0 && facts.causal)
        doubts.push_back(fmt::format("mask_token is {} and does nothing: {} is a causal model, so nothing is masked",
                                     config.mask_token, facts.architecture));
    if (!config.schedule.empty() && plan.mesh.pipe == 1 && config.stages_per_rank <= 1 && config.model_replicas <= 1 &&
        config.in_flight == 0)
        doubts.push_back(fmt::format("schedule is {}, and there is no pipeline for it: the mesh {} has one pipe rank, "
                                     "which holds the whole model; --mesh {} would make one",
                                     config.schedule, sharding::to_string(plan.mesh),
                                     sharding::to_string(with_pipe(plan.mesh))));
    if (const auto& planned = plan.schedule;
        planned && plan.mesh.pipe > 1 && recomputes_nothing(plan) && recomputes_early(planned->schedule.parameters))
        doubts.push_back(fmt::format("schedule is {}, which recomputes activations before their gradient comes, and "
                                     "nothing is recomputed: {}",
                                     planned->schedule.parameters.family,
                                     config.plan.empty() ? "--recompute says which share of the layers is, as in "
                                                           "--recompute full"
                                                         : "recompute names no block in " + config.plan));
    if (plan.zero.shards_states() && plan.mesh.data == 1 && schedule_of(plan).parameters.model_replicas == 1)
        doubts.push_back(
            fmt::format("zero is {} and does nothing: it shards model data over the data axis, and there the "
                        "mesh {} has one rank",
                        config.zero.stage(), sharding::to_string(run::mesh_of(config))));
    return doubts;
}

} // namespace tutti::train

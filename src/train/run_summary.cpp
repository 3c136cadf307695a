#include "train/run_summary.h"

#include "comm/agree.h"
#include "memory/chunk_size.h"

namespace tutti {
namespace {

OffloadSummary summary_of(const OffloadPlan& plan) {
    const ResidencyPlan& residency = plan.training.residency;
    return {.fetched = residency.fetched,
            .returned = residency.returned,
            .least = residency.least,
            .step = {residency.seconds},
            .exposed = {residency.exposed},
            .updates = plan.updates,
            .updates_at_home = plan.updates_at_home,
            .updates_later = plan.updates_later,
            .host = plan.training.step.problem.host,
            .disk = plan.timed_disk,
            .host_updates = plan.host_updates};
}

} // namespace

RunSummary summary_of(const Session& session, Group& group) {
    const Plan& plan = session.plan();
    RunSummary summary{.plan = plan,
                       .memory = session.memory(),
                       .rank_memory = gather_values(group, session.memory().total()),
                       .architecture = session.facts().architecture,
                       .data = session.data().training->describe(),
                       .device = fmt::format("{} ({})", session.device().name(), session.device().model()),
                       .tokens_per_step = plan.workload.global_batch * plan.workload.sequence};
    for (double flops : gather_values(group, session.flops_per_step())) summary.flops_per_step += flops;
    for (const StoredTensor& tensor : session.stored()) summary.parameters += tensor.type.elements();
    const ChunkLayout& layout = session.compiled().holdings.chunks;
    summary.chunks = static_cast<std::int64_t>(layout.chunks.size());
    summary.utilisation = utilisation(layout);
    if (const auto& offload = session.offload()) summary.offload = summary_of(*offload);
    return summary;
}

} // namespace tutti

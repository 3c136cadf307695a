#include "train/run_summary.h"

#include "comm/agree.h"
#include "offload/chunk_size.h"

namespace tutti::train {
namespace {

run::OffloadSummary summary_of(const offload::OffloadPlan& plan) {
    const offload::ResidencyPlan& residency = plan.training.residency;
    return {.fetched = residency.fetched,
            .returned = residency.returned,
            .least = residency.least,
            .step = {residency.seconds},
            .exposed = {residency.exposed},
            .updates = plan.updates,
            .updates_on_host = std::ssize(plan.host_updates),
            .updates_later = plan.updates_later,
            .host = plan.training.step.problem.host,
            .disk = plan.timed_disk,
            .host_updates = plan.host_update_bytes};
}

} // namespace

run::RunSummary summary_of(const Session& session, comm::Group& group) {
    const Plan& plan = session.plan();
    run::RunSummary summary{.plan = plan,
                            .memory = session.memory(),
                            .rank_memory = comm::gather_values(group, session.memory().total()),
                            .architecture = session.facts().architecture,
                            .data = session.data().training->describe(),
                            .device = fmt::format("{} ({})", session.device().name(), session.device().model()),
                            .blocks = session.blocks(),
                            .tokens_per_step = plan.workload.global_batch * plan.workload.sequence};
    for (double flops : comm::gather_values(group, session.flops_per_step())) summary.flops_per_step += flops;
    for (const StoredTensor& tensor : session.stored()) summary.parameters += tensor.type.elements();
    const memory::ChunkLayout& layout = session.compiled().ownership.layout;
    summary.chunks = static_cast<std::int64_t>(layout.chunks.size());
    summary.utilisation = offload::utilisation(layout);
    summary.decided = session.decided();
    if (const auto& offload = session.offload()) summary.offload = summary_of(*offload);
    return summary;
}

} // namespace tutti::train

#include "resolve/rank_offload.h"

#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"

#include <algorithm>
#include <limits>

namespace tutti::resolve {
namespace {

// As one may give it, and never too little.
std::string rounded_up(Bytes bytes) {
    const bool large = bytes.count >> 26 > 0;
    const std::int64_t unit = large ? 1 << 20 : 1 << 10;
    return fmt::format("{}{}", (bytes.count + unit - 1) / unit, large ? "MiB" : "KiB");
}

// Host memory for each rank, the same on all: of the machine with the least for each of its ranks.
Bytes free_for_backing(const RankOffload& rank, comm::Group& all) {
    const auto ranks = static_cast<std::int64_t>(comm::ranks_of_machine(all).size());
    Bytes mine{free_memory().count / ranks};
    if (!rank.device.memory()) mine -= rank.plan.device_memory; // which is the host's, too
    return std::max(Bytes{}, std::ranges::min(comm::gather_values(all, mine)));
}

// With a disk to go to, host memory is left some room; without, what is needed is checked before it is taken.
Bytes most_for_backing(const RankOffload& rank, Bytes free) {
    if (rank.plan.host_memory.count > 0) return rank.plan.host_memory;
    return rank.has_disk ? Bytes{9 * free.count / 10} : Bytes{std::numeric_limits<std::int64_t>::max() / 2};
}

struct DeviceNeed {
    Bytes least{};  // of device memory; 0: as much as there is will do
    Bytes beside{}; // of that, what is not for chunks
};

// Of the rank that needs the most: given that, no other asks for more.
void check_device(const Plan& plan, const DeviceNeed& mine, comm::Group& all) {
    const std::vector<DeviceNeed> needs = comm::gather_values(all, mine);
    const auto most = std::ranges::max_element(needs, {}, &DeviceNeed::least);
    if (most->least.count == 0) return;
    std::vector<std::string> others;
    if (plan.workload.micro_batch > 1) others.emplace_back("a smaller micro-batch");
    if (plan.recompute.empty()) others.emplace_back("--recompute full");
    if (plan.offload.empty()) others.emplace_back("--offload-activations full");
    fail(
        "device_memory is {}, and activations, buffers and workspace{} take {}: for the parts of the model that a step "
        "works on at a time too little is left. The least that works is {}{}",
        to_string(plan.device_memory), needs.size() > 1 ? fmt::format(" of rank {}", most - needs.begin()) : "",
        to_string(most->beside), rounded_up(most->least),
        others.empty() ? "" : fmt::format("; less is needed with {}", fmt::join(others, ", or with ")));
}

} // namespace

std::optional<offload::OffloadPlan> plan_with_others(const RankOffload& rank, comm::World& world,
                                                     const offload::OffloadSpeed& speed,
                                                     const offload::OffloadPlan* decided) {
    const compile::Compiled& compiled = rank.compiled;
    auto is_across_pipe = [&](std::int32_t group) {
        return compiled.program.groups[static_cast<std::size_t>(group)].across_pipe;
    };
    const Bytes free = free_for_backing(rank, world.all());
    const offload::OffloadLimits limits{.device = rank.plan.device_memory - rank.scratch,
                                        .host = most_for_backing(rank, free),
                                        .free = free,
                                        .has_disk = rank.has_disk,
                                        .placement = rank.plan.optimizer_placement,
                                        .eviction = rank.plan.eviction,
                                        .prefetch = rank.plan.prefetch,
                                        .updates = rank.plan.updates,
                                        .only_on_device = [&](std::int32_t chunk) {
                                            const compile::ChunkKind& kind =
                                                compiled.ownership.kind_of(static_cast<std::size_t>(chunk));
                                            return std::ranges::any_of(kind.reductions, is_across_pipe);
                                        }};
    std::optional<offload::OffloadPlan> plan;
    DeviceNeed need{.beside = rank.scratch};
    try {
        if (decided != nullptr) {
            plan = *decided;
            offload::plan_evaluation(*plan, *rank.evaluation, limits, speed);
        } else if (!rank.fits) {
            plan = offload::plan_offload(rank.compiled.program, rank.evaluation, limits, speed);
        }
    } catch (const offload::DeviceTooSmall& small) {
        need.least = need.beside + small.enough;
    }
    check_device(rank.plan, need, world.all());
    return plan;
}

} // namespace tutti::resolve

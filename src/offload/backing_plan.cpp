#include "offload/backing_plan.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

#include <algorithm>

namespace tutti::offload {

std::int64_t disk_buffer(Bytes largest) {
    constexpr std::int64_t most = 32 << 20;
    return round_up(std::clamp<std::int64_t>(largest.count, 1, most), disk_alignment);
}

Bytes disk_staging(Bytes largest) { return {2 * disk_buffer(largest) + disk_alignment}; }

Bytes BackingPlan::memory() const {
    return disk.count == 0 ? host : host + Bytes{2 * disk_staging(largest_on_disk).count};
}

BackingPlan plan_backing(const StepTimePoints& step, const ResidencyPlan& plan, Bytes host_memory) {
    const std::size_t count = step.residents.size();
    BackingPlan result{.residents = step.residents, .places = std::vector<BackingPlace>(count)};
    for (std::size_t r = 0; r < count; ++r) {
        BackingPlace& place = result.places[r];
        place.size = step.problem.residents[r];
        if (plan.tiers[r] == BackingTier::device) continue;
        const bool is_on_disk = plan.tiers[r] == BackingTier::disk;
        place.tier = plan.tiers[r];
        Bytes& end = is_on_disk ? result.disk : result.host;
        place.offset = end.count;
        end += Bytes{round_up(place.size.count, is_on_disk ? disk_alignment : memory::buffer_alignment)};
        if (is_on_disk) result.largest_on_disk = std::max(result.largest_on_disk, place.size);
    }
    for (const ResidencyInterval& interval : plan.intervals)
        if (interval.always) result.places[static_cast<std::size_t>(interval.resident)].offset = interval.offset;
    if (result.host <= host_memory) return result;
    if (step.problem.room)
        fail("host memory is limited to {}, and the optimizer works on {} there", to_string(host_memory),
             to_string(result.host));
    fail("{} of model data do not fit on the device, and host memory is limited to {}: {} more are needed, or a "
         "folder on disk (--disk)",
         to_string(result.host), to_string(host_memory), to_string(result.host - host_memory));
}

} // namespace tutti::offload

#include "runtime/homes.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti {

Bytes HomePlan::memory() const {
    return disk.count == 0 ? host : host + Bytes{2 * DiskLane::staging(largest_on_disk).count};
}

HomePlan plan_homes(const StepMoments& step, const ResidencyPlan& plan, Bytes host_memory) {
    const std::size_t count = step.residents.size();
    HomePlan result{.residents = step.residents, .homes = std::vector<Home>(count)};
    for (std::size_t r = 0; r < count; ++r) {
        Home& home = result.homes[r];
        home.size = step.problem.residents[r];
        if (plan.homes[r] == HomeTier::device) continue;
        const bool is_on_disk = plan.homes[r] == HomeTier::disk;
        home.tier = plan.homes[r];
        Bytes& end = is_on_disk ? result.disk : result.host;
        home.offset = end.count;
        end += Bytes{round_up(home.size.count, is_on_disk ? SpillFile::alignment : buffer_alignment)};
        if (is_on_disk) result.largest_on_disk = std::max(result.largest_on_disk, home.size);
    }
    for (const Stay& stay : plan.stays)
        if (stay.always) result.homes[static_cast<std::size_t>(stay.resident)].offset = stay.offset;
    if (result.host <= host_memory) return result;
    if (step.problem.room)
        fail("host memory is limited to {}, and the optimizer works on {} there", to_string(host_memory),
             to_string(result.host));
    fail("{} of model data do not fit on the device, and host memory is limited to {}: {} more are needed, or a "
         "folder on disk (--disk)",
         to_string(result.host), to_string(host_memory), to_string(result.host - host_memory));
}

Homes::Homes(const Device& device, HomePlan plan, std::byte* chunks, const fs::path& disk)
    : plan_(std::move(plan)), chunks_(chunks) {
    for (std::size_t r = 0; r < plan_.residents.size(); ++r)
        numbers_[{plan_.residents[r].region, plan_.residents[r].chunk}] = r;
    if (plan_.host.count > 0) host_ = device.allocate_staging(plan_.host);
    if (plan_.disk.count == 0) return;
    file_.emplace(disk, plan_.disk);
    from_disk_ = std::make_unique<DiskLane>(device, *file_, plan_.largest_on_disk);
    to_disk_ = std::make_unique<DiskLane>(device, *file_, plan_.largest_on_disk);
}

void Homes::wait_for_disk() const {
    for (DiskLane* lane : {from_disk_.get(), to_disk_.get()})
        if (lane != nullptr) lane->synchronize();
}

const Home* Homes::find(const ChunkResident& resident) const {
    const auto at = numbers_.find({resident.region, resident.chunk});
    return at == numbers_.end() ? nullptr : &plan_.homes[at->second];
}

std::byte* Homes::memory(const Home& home) const {
    TUTTI_CHECK(home.tier != HomeTier::disk, "a chunk on disk has no address");
    return (home.tier == HomeTier::device ? chunks_ : host_->data()) + home.offset;
}

void Homes::read(const Home& home, std::int64_t offset, std::span<std::byte> out) const {
    if (home.tier == HomeTier::disk)
        file_->read(home.offset + offset, out);
    else
        std::memcpy(out.data(), memory(home) + offset, out.size());
}

void Homes::write(const Home& home, std::int64_t offset, std::span<const std::byte> in) const {
    if (home.tier == HomeTier::disk)
        file_->write(home.offset + offset, in);
    else
        std::memcpy(memory(home) + offset, in.data(), in.size());
}

} // namespace tutti

#include "offload/execution/homes.h"

#include "base/error.h"

#include <cstring>
#include <utility>

namespace tutti::offload {

Homes::Homes(const backend::Device& device, HomePlan plan, std::byte* chunks, const fs::path& disk)
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

} // namespace tutti::offload

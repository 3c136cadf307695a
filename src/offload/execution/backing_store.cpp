#include "offload/execution/backing_store.h"

#include "base/error.h"

#include <cstring>
#include <utility>

namespace tutti::offload {

BackingStore::BackingStore(const backend::Device& device, BackingPlan plan, std::byte* chunks, const fs::path& disk)
    : plan_(std::move(plan)), chunks_(chunks) {
    for (std::size_t r = 0; r < plan_.residents.size(); ++r)
        numbers_[{plan_.residents[r].region, plan_.residents[r].chunk}] = r;
    if (plan_.host.count > 0) host_ = device.allocate_staging(plan_.host);
    if (plan_.disk.count == 0) return;
    file_.emplace(disk, plan_.disk);
    from_disk_ = std::make_unique<DiskLane>(device, *file_, plan_.largest_on_disk);
    to_disk_ = std::make_unique<DiskLane>(device, *file_, plan_.largest_on_disk);
}

void BackingStore::wait_for_disk() const {
    for (DiskLane* lane : {from_disk_.get(), to_disk_.get()})
        if (lane != nullptr) lane->synchronize();
}

const BackingPlace* BackingStore::find(const ChunkResident& resident) const {
    const auto at = numbers_.find({resident.region, resident.chunk});
    return at == numbers_.end() ? nullptr : &plan_.places[at->second];
}

std::byte* BackingStore::memory(const BackingPlace& place) const {
    TUTTI_CHECK(place.tier != BackingTier::disk, "a chunk on disk has no address");
    return (place.tier == BackingTier::device ? chunks_ : host_->data()) + place.offset;
}

void BackingStore::read(const BackingPlace& place, std::int64_t offset, std::span<std::byte> out) const {
    if (place.tier == BackingTier::disk)
        file_->read(place.offset + offset, out);
    else
        std::memcpy(out.data(), memory(place) + offset, out.size());
}

void BackingStore::write(const BackingPlace& place, std::int64_t offset, std::span<const std::byte> in) const {
    if (place.tier == BackingTier::disk)
        file_->write(place.offset + offset, in);
    else
        std::memcpy(memory(place) + offset, in.data(), in.size());
}

} // namespace tutti::offload

// BackingStore: the host memory and the file that hold chunks while they are not on the device, laid out by a
// BackingPlan.
#pragma once

#include "backend/device.h"
#include "base/file.h"
#include "offload/backing_plan.h"
#include "offload/execution/disk_lane.h"
#include "offload/execution/spill_file.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::offload {

class BackingStore {
  public:
    // `chunks`: the device memory for chunks. `disk`: a folder; the file there is gone when this is.
    BackingStore(const backend::Device& device, BackingPlan plan, std::byte* chunks, const fs::path& disk);

    const BackingPlan& plan() const { return plan_; }
    const BackingPlace* find(const ChunkResident& resident) const; // null: no such resident
    // The address of a backing place in host memory or on the device; never of one on disk.
    std::byte* memory(const BackingPlace& place) const;
    DiskLane& from_disk() const { return *from_disk_; }
    DiskLane& to_disk() const { return *to_disk_; }
    void wait_for_disk() const;
    // Bytes of a chunk in its backing place.
    void read(const BackingPlace& place, std::int64_t offset, std::span<std::byte> out) const;
    void write(const BackingPlace& place, std::int64_t offset, std::span<const std::byte> in) const;

  private:
    BackingPlan plan_;
    std::map<std::pair<Region, std::int32_t>, std::size_t> numbers_;
    std::byte* chunks_;
    std::unique_ptr<backend::Arena> host_;
    std::optional<SpillFile> file_;
    std::unique_ptr<DiskLane> from_disk_, to_disk_;
};

} // namespace tutti::offload

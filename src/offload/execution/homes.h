// Homes: the memory and the file where chunks are while they are not on the device, as a HomePlan says.
#pragma once

#include "backend/device.h"
#include "base/file.h"
#include "offload/execution/disk_lane.h"
#include "offload/execution/spill_file.h"
#include "offload/home_plan.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::offload {

class Homes {
  public:
    // `chunks`: the device memory for chunks. `disk`: a folder; the file there is gone when this is.
    Homes(const backend::Device& device, HomePlan plan, std::byte* chunks, const fs::path& disk);

    const HomePlan& plan() const { return plan_; }
    const Home* find(const ChunkResident& resident) const; // null: no such resident
    // Of what is at home in host memory, or on the device.
    std::byte* memory(const Home& home) const;
    DiskLane& from_disk() const { return *from_disk_; }
    DiskLane& to_disk() const { return *to_disk_; }
    void wait_for_disk() const;
    // Bytes of a chunk at home, not on the device.
    void read(const Home& home, std::int64_t offset, std::span<std::byte> out) const;
    void write(const Home& home, std::int64_t offset, std::span<const std::byte> in) const;

  private:
    HomePlan plan_;
    std::map<std::pair<Region, std::int32_t>, std::size_t> numbers_;
    std::byte* chunks_;
    std::unique_ptr<backend::Arena> host_;
    std::optional<SpillFile> file_;
    std::unique_ptr<DiskLane> from_disk_, to_disk_;
};

} // namespace tutti::offload

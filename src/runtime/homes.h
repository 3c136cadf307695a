// Homes: where chunks are when they are not on the device, in host memory or in a file; those that never leave the
// device have their home there.
#pragma once

#include "backend/device.h"
#include "base/file.h"
#include "memory/moments.h"
#include "runtime/disk_lane.h"
#include "runtime/spill_file.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti {

struct Home {
    HomeTier tier = HomeTier::device;
    std::int64_t offset = 0; // in the device memory for chunks, in host memory, in the file
    Bytes size{};
};

// What is planned of them, before anything is allocated.
struct HomePlan {
    std::vector<ChunkResident> residents{};
    std::vector<Home> homes{}; // of the residents; device: of those that never leave, or are nowhere between stays
    Bytes host{}, disk{};
    Bytes largest_on_disk{};

    Bytes memory() const; // of the host: homes, and what copies from and to the disk go through
};

// Homes where a plan has them. Error where they are more than this, saying how much.
HomePlan plan_homes(const StepMoments& step, const ResidencyPlan& plan, Bytes host_memory);

class Homes {
  public:
    // `chunks`: the device memory for chunks. `disk`: a folder; the file there is gone when this is.
    Homes(const Device& device, HomePlan plan, std::byte* chunks, const fs::path& disk);

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
    std::unique_ptr<Arena> host_;
    std::optional<SpillFile> file_;
    std::unique_ptr<DiskLane> from_disk_, to_disk_;
};

} // namespace tutti

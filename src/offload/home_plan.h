// HomePlan: where chunks are while they are not on the device, in host memory or in a file, decided before anything is
// allocated. Chunks that never leave the device have their home there.
#pragma once

#include "base/units.h"
#include "offload/moments.h"
#include "offload/residency.h"

#include <cstdint>
#include <vector>

namespace tutti::offload {

constexpr std::int64_t disk_alignment = 4096; // of offsets, sizes and addresses, where bytes go past the system's cache
std::int64_t
disk_buffer(Bytes largest);        // bytes that a lane to or from the disk copies at a time; largest: of its copies
Bytes disk_staging(Bytes largest); // host memory that such a lane takes: two buffers, aligned

struct Home {
    HomeTier tier = HomeTier::device;
    std::int64_t offset = 0; // in the device memory for chunks, in host memory, in the file
    Bytes size{};

    bool operator==(const Home&) const = default;
};

// What is planned of them, before anything is allocated.
struct HomePlan {
    std::vector<ChunkResident> residents{};
    std::vector<Home> homes{}; // of the residents; device: of those that never leave, or are nowhere between stays
    Bytes host{}, disk{};
    Bytes largest_on_disk{};

    bool operator==(const HomePlan&) const = default;
    Bytes memory() const; // of the host: homes, and what copies from and to the disk go through
};

// Homes where a plan has them. Error where they are more than this, saying how much.
HomePlan plan_homes(const StepMoments& step, const ResidencyPlan& plan, Bytes host_memory);

} // namespace tutti::offload

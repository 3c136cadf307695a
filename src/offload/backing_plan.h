// BackingPlan: where chunks lie while they are not on the device, in host memory or in a file. It is decided before
// anything is allocated. A chunk that never leaves the device has its backing place there.
#pragma once

#include "base/units.h"
#include "offload/residency.h"
#include "offload/time_points.h"

#include <cstdint>
#include <vector>

namespace tutti::offload {

constexpr std::int64_t disk_alignment = 4096; // of offsets, sizes and addresses, where bytes go past the system's cache
std::int64_t
disk_buffer(Bytes largest);        // bytes that a lane to or from the disk copies at a time; largest: of its copies
Bytes disk_staging(Bytes largest); // host memory that such a lane takes: two buffers, aligned

struct BackingPlace {
    BackingTier tier = BackingTier::device;
    std::int64_t offset = 0; // in the device memory for chunks, in host memory, in the file
    Bytes size{};

    bool operator==(const BackingPlace&) const = default;
};

// The backing places of all residents of a step.
struct BackingPlan {
    std::vector<ChunkResident> residents{};
    std::vector<BackingPlace>
        places{}; // of the residents; tier device: it never leaves, or its content is dead between intervals
    Bytes host{}, disk{};
    Bytes largest_on_disk{};

    bool operator==(const BackingPlan&) const = default;
    Bytes memory() const; // of the host: backing places, and the buffers of copies from and to the disk
};

// The backing places that a residency plan needs. Error, with the size, if they take more than `host_memory`.
BackingPlan plan_backing(const StepTimePoints& step, const ResidencyPlan& plan, Bytes host_memory);

} // namespace tutti::offload

// Offsets for buffers with known lifetimes: buffers that are alive together never overlap. One call both measures the
// memory that buffers need and places them.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <vector>

namespace tutti::memory {

struct LiveBuffer {
    Bytes size;
    std::int32_t first = 0; // first and last time point of use, both included
    std::int32_t last = 0;
    std::int64_t offset = -1; // the answer
};

// Every offset is a multiple of this.
constexpr std::int64_t buffer_alignment = 256;

// Places the buffers, largest first, each in the lowest gap that its interval leaves; the better of two orders of equal
// ones. Returns the size of the region.
Bytes place_buffers(std::vector<LiveBuffer>& buffers);

} // namespace tutti::memory

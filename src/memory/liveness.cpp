#include "memory/liveness.h"

#include "base/checked.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <span>

namespace tutti {

namespace {

std::int64_t room_of(const LiveBuffer& buffer) {
    return round_up(std::max<std::int64_t>(buffer.size.count, 1), buffer_alignment);
}

// The most that is alive at once: no placement takes less.
std::int64_t least_room(std::span<const LiveBuffer> buffers) {
    std::map<std::int32_t, std::int64_t> changes;
    for (const LiveBuffer& buffer : buffers) {
        changes[buffer.first] += room_of(buffer);
        changes[buffer.last + 1] -= room_of(buffer);
    }
    std::int64_t alive = 0, most = 0;
    for (const auto& [moment, change] : changes) most = std::max(most, alive += change);
    return most;
}

// Each in the lowest gap that its interval leaves.
std::int64_t place_in_order(std::span<LiveBuffer> buffers, std::span<const std::size_t> order) {
    std::vector<std::size_t> by_offset; // placed so far
    std::int64_t total = 0;
    for (std::size_t i : order) {
        LiveBuffer& buffer = buffers[i];
        const std::int64_t size = room_of(buffer);
        std::int64_t offset = 0;
        for (std::size_t j : by_offset) {
            const LiveBuffer& other = buffers[j];
            if (other.last < buffer.first || buffer.last < other.first) continue;
            if (other.offset >= offset + size) break; // the gap before this one is large enough
            offset = std::max(offset, round_up(other.offset + other.size.count, buffer_alignment));
        }
        buffer.offset = offset;
        total = std::max(total, offset + size);
        const auto at =
            std::ranges::lower_bound(by_offset, offset, {}, [&](std::size_t j) { return buffers[j].offset; });
        by_offset.insert(at, i);
    }
    return total;
}

} // namespace

Bytes place_buffers(std::vector<LiveBuffer>& buffers) {
    std::vector<std::size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::int64_t least = least_room(buffers);
    std::int64_t best = 0;
    std::vector<LiveBuffer> placed;
    // Equal ones, such as chunks that come one after the other, as they are given, or the other way round.
    for (const bool reversed : {false, true}) {
        if (reversed) std::ranges::reverse(order);
        std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return buffers[i].size.count; });
        const std::int64_t total = place_in_order(buffers, order);
        if (placed.empty() || total < best) {
            best = total;
            placed = buffers;
        }
        if (best <= least) break;
    }
    buffers = std::move(placed);
    return {best};
}

} // namespace tutti

#include "memory/liveness.h"

#include "base/checked.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <span>

namespace tutti::memory {

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
    for (const auto& [time_point, change] : changes) most = std::max(most, alive += change);
    return most;
}

using Rooms = std::vector<std::int64_t>; // per buffer

// Each in the lowest gap that its interval leaves; returns the end of the last.
std::int64_t place_in_order(std::span<LiveBuffer> buffers, const Rooms& rooms, std::span<const std::size_t> order) {
    std::vector<std::size_t> by_offset; // placed so far
    std::int64_t total = 0;
    for (std::size_t i : order) {
        LiveBuffer& buffer = buffers[i];
        std::int64_t offset = 0;
        for (std::size_t j : by_offset) {
            const LiveBuffer& other = buffers[j];
            if (other.last < buffer.first || buffer.last < other.first) continue;
            if (other.offset >= offset + rooms[i]) break; // the gap before this one is large enough
            offset = std::max(offset, other.offset + rooms[j]);
        }
        buffer.offset = offset;
        total = std::max(total, offset + room_of(buffer));
        const auto at =
            std::ranges::lower_bound(by_offset, offset, {}, [&](std::size_t j) { return buffers[j].offset; });
        by_offset.insert(at, i);
    }
    return total;
}

// Buffers of about one size, within a half of a power of two, as large as the largest of them: so they can follow each
// other in the same places.
Rooms in_classes(const Rooms& rooms) {
    auto class_of = [](std::int64_t room) {
        const int shift = std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(room))) - 2);
        return room >> shift << shift;
    };
    std::map<std::int64_t, std::int64_t> largest;
    for (std::int64_t room : rooms) {
        std::int64_t& most = largest[class_of(room)];
        most = std::max(most, room);
    }
    Rooms alike;
    for (std::int64_t room : rooms) alike.push_back(largest[class_of(room)]);
    return alike;
}

} // namespace

Bytes place_buffers(std::vector<LiveBuffer>& buffers) {
    if (buffers.empty()) return {};
    const std::int64_t least = least_room(buffers);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    std::vector<LiveBuffer> placed;
    std::vector<std::size_t> order(buffers.size());
    auto attempt = [&](const Rooms& rooms) { // the larger first; equal ones in the order they have
        if (best <= least) return;
        std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return rooms[i]; });
        const std::int64_t total = place_in_order(buffers, rooms, order);
        if (total >= best) return;
        best = total;
        placed = buffers;
    };
    Rooms rooms;
    for (const LiveBuffer& buffer : buffers) rooms.push_back(room_of(buffer));
    std::iota(order.begin(), order.end(), std::size_t{0});
    attempt(rooms);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    attempt(rooms);
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return buffers[i].first; });
    attempt(in_classes(rooms));
    buffers = std::move(placed);
    return {best};
}

} // namespace tutti::memory

#include "memory/liveness.h"

#include "base/checked.h"

#include <algorithm>
#include <numeric>

namespace tutti {

Bytes place_buffers(std::vector<LiveBuffer>& buffers) {
    std::vector<std::size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return buffers[a].size > buffers[b].size; });

    std::vector<std::size_t> by_offset; // placed so far
    std::int64_t total = 0;
    for (std::size_t i : order) {
        LiveBuffer& buffer = buffers[i];
        const std::int64_t size = round_up(std::max<std::int64_t>(buffer.size.count, 1), buffer_alignment);
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
    return {total};
}

} // namespace tutti

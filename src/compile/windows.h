// Windows: when chunks that ZeRO shards over ranks are gathered, as FSDP unshards its units.
#pragma once

#include "compile/node_order.h"
#include "compile/stored_places.h"

#include <array>
#include <span>

namespace tutti::compile {

// A sharded chunk that is whole for a while, in the transient region of a part: weights from their gathering to their
// last reader, gradients from their first contribution to the end of their reduction.
struct Window {
    std::int32_t chunk = 0;
    std::int32_t first = 0, last = 0; // positions in the order, both included
    std::int32_t used = 0;            // last position of its own: a reduction starts there, and ends after `last`
    std::int64_t offset = -1;
};
using Windows = std::array<std::vector<Window>, part_count>;

// Weights are gathered when the chunk before is first read; `completed`: per node, a collective, the position of the
// first that reads it. `gathered`: per chunk; empty: none.
Windows weight_windows(const Graph& graph, const NodeOrder& order, const StoredPlaces& places,
                       const std::vector<bool>& gathered, std::span<const std::int32_t> completed);
// The reduction of gradients ends when that of the chunk after begins.
Windows gradient_windows(const Graph& graph, const NodeOrder& order, const StoredPlaces& places,
                         const std::vector<bool>& scattered);

} // namespace tutti::compile

// Parts: how the indices of a dimension are divided among the ranks of an axis. Parts may be uneven, and a rank's part
// may be several ranges: its heads' rows of queries, keys and values in one matrix.
#pragma once

#include "base/ranges.h"

#include <cstdint>
#include <vector>

namespace tutti {

using Parts = std::vector<Ranges>; // one per rank

// Every index below `size` is in exactly one part, and no part is empty.
bool divides(const Parts& parts, std::int64_t size);
// Each part is one range, and they follow one another.
bool in_rank_order(const Parts& parts);
std::int64_t count(const Parts& parts); // of all indices

// As an attribute of a node: of each rank the number of its ranges, then begin and end of each.
std::vector<std::int64_t> encode_parts(const Parts& parts);
Parts decode_parts(const std::vector<std::int64_t>& numbers);

} // namespace tutti

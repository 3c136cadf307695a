#include "memory/holding.h"

#include "base/error.h"

namespace tutti::memory {

Holding whole_model(std::span<const StoredTensor> stored) {
    Holding holding;
    for (const StoredTensor& tensor : stored)
        holding.tensors.push_back({.name = tensor.name, .slice = sharding::TensorSlice::all_of(tensor.type.shape)});
    return holding;
}

Range range_of(const Holding::ChunkRanges& ranges, std::size_t chunk, std::int64_t elements) {
    if (ranges.empty()) return {0, elements};
    const Range range = ranges.at(chunk);
    TUTTI_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= elements,
                "elements {} to {} of chunk {}, which has {}", range.begin, range.end, chunk, elements);
    return range;
}

} // namespace tutti::memory

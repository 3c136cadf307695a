// TensorSlice: the part of a stored tensor that a rank owns, told in indices of the whole one. Checkpoints, weights and
// dumps speak of whole tensors; a slice says where a rank's elements lie in them.
#pragma once

#include "base/ranges.h"
#include "base/shape.h"

#include <vector>

namespace tutti::sharding {

// Elements that lie together both in the whole tensor and in a part of it.
struct SliceRun {
    std::int64_t whole = 0; // place of the first one in the whole tensor,
    std::int64_t part = 0;  // and in the part
    std::int64_t count = 0;

    bool operator==(const SliceRun&) const = default;
};

struct TensorSlice {
    Shape whole;
    std::vector<Ranges> dims; // per dimension the indices that are owned

    static TensorSlice all_of(const Shape& whole);

    Shape shape() const; // of what is owned, dense, in the order of the whole
    std::int64_t elements() const { return shape().elements(); }
    bool is_whole() const { return shape() == whole; }

    // The slice of this slice: `part` counts within what is owned.
    TensorSlice within(const TensorSlice& part) const;

    // These of the slice's elements as the longest runs that are contiguous in the whole tensor too, in order. The part
    // that runs count in is what was asked for: it begins at `elements.begin`.
    std::vector<SliceRun> runs(Range elements) const;

    bool operator==(const TensorSlice&) const = default;
};

} // namespace tutti::sharding

// TensorSlice: the part of a stored tensor that a rank holds, told in indices of the whole one. Checkpoints, weights
// and dumps speak of whole tensors; a slice says where a rank's elements lie in them.
#pragma once

#include "base/ranges.h"
#include "base/shape.h"

#include <functional>
#include <vector>

namespace tutti::sharding {

struct TensorSlice {
    Shape whole;
    std::vector<Ranges> dims; // per dimension the indices that are held

    static TensorSlice all_of(const Shape& whole);

    Shape shape() const; // of what is held, dense, in the order of the whole
    std::int64_t elements() const { return shape().elements(); }
    bool is_whole() const { return shape() == whole; }

    // The slice of this slice: `part` counts within what is held.
    TensorSlice within(const TensorSlice& part) const;

    // The held elements [first, first + count), as the longest runs that are contiguous in the whole tensor too.
    using Visit = std::function<void(std::int64_t held, std::int64_t whole, std::int64_t count)>;
    void for_each_run(std::int64_t first, std::int64_t count, const Visit& visit) const;

    bool operator==(const TensorSlice&) const = default;
};

} // namespace tutti::sharding

#include "sharding/slice.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::sharding {

TensorSlice TensorSlice::all_of(const Shape& whole) {
    TensorSlice slice{whole, {}};
    for (std::int64_t size : whole) slice.dims.push_back({{0, size}});
    return slice;
}

Shape TensorSlice::shape() const {
    Shape owned;
    for (const Ranges& ranges : dims) owned.push_back(count(ranges));
    return owned;
}

TensorSlice TensorSlice::within(const TensorSlice& part) const {
    TUTTI_CHECK(part.whole == shape(), "a slice of {} within {}", to_string(part.whole), to_string(shape()));
    TensorSlice result{whole, {}};
    for (std::size_t d = 0; d < dims.size(); ++d) {
        Ranges ranges;
        for (const Range& wanted : part.dims[d]) {
            std::int64_t before = 0; // owned indices before this range
            for (const Range& range : dims[d]) {
                for (const Range& hit : tutti::within({{before, before + range.size()}}, wanted)) {
                    const std::int64_t begin = range.begin + wanted.begin + hit.begin - before;
                    ranges = joined(ranges, {{begin, begin + hit.size()}});
                }
                before += range.size();
            }
        }
        result.dims.push_back(std::move(ranges));
    }
    return result;
}

namespace {

// A place along one dimension: the index in the whole, and how many follow it in the same range.
struct Found {
    std::int64_t index, left;
};

Found find(const Ranges& ranges, std::int64_t place) {
    for (const Range& range : ranges) {
        if (place < range.size()) return {range.begin + place, range.size() - place};
        place -= range.size();
    }
    TUTTI_CHECK(false, "{} is beyond the ranges", place);
    return {};
}

} // namespace

std::vector<SliceRun> TensorSlice::runs(Range elements) const {
    const Shape sizes = shape();
    TUTTI_CHECK(0 <= elements.begin && elements.begin <= elements.end && elements.end <= sizes.elements(),
                "elements {} to {} of {}", elements.begin, elements.end, to_string(sizes));
    // Dimensions from `inner` on are whole: they move as one.
    int inner = sizes.rank();
    std::int64_t block = 1;
    while (inner > 0 && sizes[inner - 1] == whole[inner - 1]) block *= whole[--inner];
    std::vector<SliceRun> runs;
    for (std::int64_t next = elements.begin; next < elements.end;) {
        std::int64_t rest = next / block, within_block = next % block, at = 0, stride = block, left = 1;
        for (int d = inner - 1; d >= 0; --d) {
            const Found found = find(dims[static_cast<std::size_t>(d)], rest % sizes[d]);
            if (d == inner - 1) left = found.left;
            at += found.index * stride;
            stride *= whole[d];
            rest /= sizes[d];
        }
        const std::int64_t count = std::min(elements.end - next, left * block - within_block);
        runs.push_back({at + within_block, next - elements.begin, count});
        next += count;
    }
    return runs;
}

} // namespace tutti::sharding

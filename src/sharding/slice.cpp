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
    Shape held;
    for (const Ranges& ranges : dims) held.push_back(count(ranges));
    return held;
}

TensorSlice TensorSlice::within(const TensorSlice& part) const {
    TUTTI_CHECK(part.whole == shape(), "a slice of {} within {}", to_string(part.whole), to_string(shape()));
    TensorSlice result{whole, {}};
    for (std::size_t d = 0; d < dims.size(); ++d) {
        Ranges ranges;
        for (const Range& wanted : part.dims[d]) {
            std::int64_t before = 0; // held indices before this range
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

Found find(const Ranges& ranges, std::int64_t held) {
    for (const Range& range : ranges) {
        if (held < range.size()) return {range.begin + held, range.size() - held};
        held -= range.size();
    }
    TUTTI_CHECK(false, "{} is beyond the ranges", held);
    return {};
}

} // namespace

void TensorSlice::for_each_run(std::int64_t first, std::int64_t count, const Visit& visit) const {
    const Shape held = shape();
    TUTTI_CHECK(first >= 0 && count >= 0 && first + count <= held.elements(), "elements {} to {} of {}", first,
                first + count, to_string(held));
    // Dimensions from `inner` on are whole: they move as one.
    int inner = held.rank();
    std::int64_t block = 1;
    while (inner > 0 && held[inner - 1] == whole[inner - 1]) block *= whole[--inner];
    while (count > 0) {
        std::int64_t rest = first / block, within_block = first % block, at = 0, stride = block, left = 1;
        for (int d = inner - 1; d >= 0; --d) {
            const Found found = find(dims[static_cast<std::size_t>(d)], rest % held[d]);
            if (d == inner - 1) left = found.left;
            at += found.index * stride;
            stride *= whole[d];
            rest /= held[d];
        }
        const std::int64_t run = std::min(count, left * block - within_block);
        visit(first, at + within_block, run);
        first += run;
        count -= run;
    }
}

} // namespace tutti::sharding

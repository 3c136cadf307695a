// Ranges: which indices of a dimension a part of a tensor holds, ascending and without overlap.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

struct Range {
    std::int64_t begin = 0, end = 0;

    std::int64_t size() const { return end - begin; }
    bool operator==(const Range&) const = default;
};

using Ranges = std::vector<Range>;

std::int64_t count(const Ranges& ranges);              // of indices
Ranges shifted(const Ranges& ranges, std::int64_t by); // every index moved
Ranges scaled(const Ranges& ranges, std::int64_t by);  // every index becomes `by` of them
Ranges within(const Ranges& ranges, Range window);     // those inside, counted from its begin
Ranges joined(const Ranges& a, const Ranges& b);       // both; neighbours become one range
// [0, units * unit) in `parts` runs of whole units, the first ones larger by one where they do not divide.
std::vector<Ranges> even_parts(std::int64_t units, std::int64_t unit, int parts);

} // namespace tutti

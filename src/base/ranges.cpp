#include "base/ranges.h"

#include <algorithm>

namespace tutti {
namespace {

void append(Ranges& ranges, Range next) {
    if (next.size() <= 0) return;
    if (!ranges.empty() && ranges.back().end == next.begin)
        ranges.back().end = next.end;
    else
        ranges.push_back(next);
}

} // namespace

std::int64_t count(const Ranges& ranges) {
    std::int64_t total = 0;
    for (const Range& range : ranges) total += range.size();
    return total;
}

Ranges shifted(const Ranges& ranges, std::int64_t by) {
    Ranges result;
    for (const Range& range : ranges) append(result, {range.begin + by, range.end + by});
    return result;
}

Ranges scaled(const Ranges& ranges, std::int64_t by) {
    Ranges result;
    for (const Range& range : ranges) append(result, {range.begin * by, range.end * by});
    return result;
}

Ranges within(const Ranges& ranges, Range window) {
    Ranges result;
    for (const Range& range : ranges)
        append(result,
               {std::max(range.begin, window.begin) - window.begin, std::min(range.end, window.end) - window.begin});
    return result;
}

Ranges joined(const Ranges& a, const Ranges& b) {
    Ranges all = a, result;
    all.insert(all.end(), b.begin(), b.end());
    std::ranges::sort(all, {}, &Range::begin);
    for (const Range& range : all) append(result, range);
    return result;
}

std::vector<Ranges> even_parts(std::int64_t units, std::int64_t unit, int parts) {
    std::vector<Ranges> result;
    std::int64_t begin = 0;
    for (int part = 0; part < parts; ++part) {
        const std::int64_t end = begin + (units / parts + (part < units % parts ? 1 : 0)) * unit;
        Ranges ranges;
        append(ranges, {begin, end});
        result.push_back(std::move(ranges));
        begin = end;
    }
    return result;
}

} // namespace tutti

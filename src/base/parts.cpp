#include "base/parts.h"

#include "base/error.h"

#include <algorithm>

namespace tutti {

bool divides(const Parts& parts, std::int64_t size) {
    Ranges all;
    for (const Ranges& ranges : parts) {
        if (ranges.empty()) return false;
        for (std::size_t i = 0; i < ranges.size(); ++i) {
            if (ranges[i].size() <= 0 || (i > 0 && ranges[i].begin <= ranges[i - 1].end)) return false;
            all.push_back(ranges[i]);
        }
    }
    std::ranges::sort(all, {}, &Range::begin);
    std::int64_t next = 0;
    for (const Range& range : all) {
        if (range.begin != next) return false;
        next = range.end;
    }
    return next == size;
}

bool in_rank_order(const Parts& parts) {
    std::int64_t next = 0;
    for (const Ranges& ranges : parts) {
        if (ranges.size() != 1 || ranges[0].begin != next) return false;
        next = ranges[0].end;
    }
    return true;
}

std::int64_t count(const Parts& parts) {
    std::int64_t total = 0;
    for (const Ranges& ranges : parts) total += count(ranges);
    return total;
}

std::vector<std::int64_t> encode_parts(const Parts& parts) {
    std::vector<std::int64_t> numbers;
    for (const Ranges& ranges : parts) {
        numbers.push_back(static_cast<std::int64_t>(ranges.size()));
        for (const Range& range : ranges) numbers.insert(numbers.end(), {range.begin, range.end});
    }
    return numbers;
}

Parts decode_parts(const std::vector<std::int64_t>& numbers) {
    Parts parts;
    for (std::size_t at = 0; at < numbers.size();) {
        const std::int64_t ranges = numbers[at++], left = static_cast<std::int64_t>(numbers.size() - at) / 2;
        if (ranges < 0 || ranges > left) fail("parts of {} numbers cannot have {} ranges", numbers.size(), ranges);
        Ranges& part = parts.emplace_back();
        for (std::int64_t i = 0; i < ranges; ++i, at += 2) part.push_back({numbers[at], numbers[at + 1]});
    }
    return parts;
}

} // namespace tutti

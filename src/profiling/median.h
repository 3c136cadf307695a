#pragma once

#include <algorithm>
#include <vector>

namespace tutti::profiling {

inline double median(std::vector<double> samples) {
    const auto at = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::ranges::nth_element(samples, at);
    return *at;
}

} // namespace tutti::profiling

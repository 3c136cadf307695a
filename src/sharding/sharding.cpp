#include "sharding/sharding.h"

#include <fmt/format.h>

namespace tutti::sharding {

Shape local_shape(const Shape& whole, const Sharding& sharding, int rank) {
    Shape held = whole;
    if (sharding.is_split()) held[sharding.dim] = count(sharding.parts[static_cast<std::size_t>(rank)]);
    return held;
}

std::string to_string(const Sharding& sharding) {
    if (sharding.is_replicated()) return "replicated";
    if (sharding.is_partial()) return sharding.combine == Combine::sum ? "partial sum" : "partial maximum";
    std::string text = fmt::format("split {}", sharding.dim);
    for (const Ranges& ranges : sharding.parts)
        for (std::size_t i = 0; i < ranges.size(); ++i)
            text += fmt::format("{}[{},{})", i ? "+" : " ", ranges[i].begin, ranges[i].end);
    return text;
}

} // namespace tutti::sharding

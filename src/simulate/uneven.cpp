#include "simulate/uneven.h"

#include "base/philox.h"

#include <algorithm>

namespace tutti::simulate {
namespace {

constexpr int draws = 15;

Outline at_pace(Outline outline, double pace) {
    for (OutlineTask& task : outline.tasks)
        for (OutlineAction& action : task.actions) action.seconds *= pace;
    return outline;
}

double time_of(const std::vector<WalkedRank>& ranks) {
    return std::ranges::max_element(ranks, {}, &WalkedRank::time)->time;
}

} // namespace

std::vector<WalkedRank> walk_uneven(std::span<const Outline> outlines, std::span<const double> paces) {
    if (std::ranges::all_of(paces, [](double pace) { return pace == 1; })) return walk(outlines);
    std::vector<std::vector<WalkedRank>> walks;
    std::vector<Outline> paced(outlines.size());
    for (std::uint64_t draw = 0; draw < draws; ++draw) {
        for (std::size_t r = 0; r < outlines.size(); ++r)
            paced[r] = at_pace(outlines[r], paces[philox_draw({}, draw, r) % paces.size()]);
        walks.push_back(walk(paced));
    }
    const auto middle = walks.begin() + draws / 2;
    std::ranges::nth_element(walks, middle, {}, time_of);
    return std::move(*middle);
}

} // namespace tutti::simulate

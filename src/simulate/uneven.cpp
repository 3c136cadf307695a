#include "simulate/uneven.h"

#include "base/philox.h"

#include <algorithm>

namespace tutti::simulate {
namespace {

constexpr int draws = 15;

Outline slowed_down(Outline outline, double slowdown) {
    for (OutlineTask& task : outline.tasks)
        for (OutlineAction& action : task.actions) action.seconds *= slowdown;
    return outline;
}

double time_of(const std::vector<SimulatedRank>& ranks) {
    return std::ranges::max_element(ranks, {}, &SimulatedRank::time)->time;
}

} // namespace

std::vector<SimulatedRank> simulate_uneven(std::span<const Outline> outlines, std::span<const double> slowdowns) {
    if (std::ranges::all_of(slowdowns, [](double slowdown) { return slowdown == 1; })) return simulate(outlines);
    std::vector<std::vector<SimulatedRank>> simulations;
    std::vector<Outline> slowed(outlines.size());
    for (std::uint64_t draw = 0; draw < draws; ++draw) {
        for (std::size_t r = 0; r < outlines.size(); ++r)
            slowed[r] = slowed_down(outlines[r], slowdowns[philox_draw({}, draw, r) % slowdowns.size()]);
        simulations.push_back(simulate(slowed));
    }
    const auto middle = simulations.begin() + draws / 2;
    std::ranges::nth_element(simulations, middle, {}, time_of);
    return std::move(*middle);
}

} // namespace tutti::simulate

#include "backend/cuda/timing.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti::backend::cuda {
namespace {

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

} // namespace

// Every candidate once, then the best few in turns, so that a change of the GPU's clock meets all of them. A turn is
// long enough to bring the GPU to its power limit where the work can: there it slows down, and not all kernels by the
// same. About half a second for long work, less for short.
std::size_t fastest(std::size_t candidates, const std::function<double(std::size_t candidate, int runs)>& time,
                    double& microseconds) {
    constexpr double shortest = 200, first_budget = 50e3, turn = 20e3; // microseconds
    constexpr double most_in_turn = 100;
    constexpr std::size_t finalists = 4, fewest_candidates = 8, rounds = 3;
    microseconds = 0;
    struct Timed {
        std::size_t candidate;
        double first;
        std::vector<double> all;
    };
    std::vector<Timed> timed;
    double spent = 0;
    for (std::size_t i = 0; i < candidates && (i < fewest_candidates || spent < first_budget); ++i) {
        time(i, 1); // loads the code
        const double once = time(i, 1);
        if (!std::isfinite(once)) continue;
        const int runs = static_cast<int>(std::clamp(std::ceil(shortest / std::max(once, 1.0)), 1.0, 50.0));
        const double first = runs > 1 ? time(i, runs) : once;
        spent += once + (runs > 1 ? runs * first : 0);
        timed.push_back({i, first, {}});
    }
    if (timed.empty()) return 0;
    std::ranges::stable_sort(timed, {}, &Timed::first);
    timed.resize(std::min(timed.size(), finalists), timed.front());
    const bool is_long = timed.front().first > 10 * turn; // as long as a turn by itself
    for (std::size_t round = 0; round < (is_long ? 1 : rounds); ++round)
        for (Timed& one : timed) {
            const int runs =
                static_cast<int>(std::clamp(std::ceil(turn / std::max(one.first, 1.0)), 1.0, most_in_turn));
            if (!is_long) time(one.candidate, runs); // until the clock has settled
            one.all.push_back(time(one.candidate, runs));
        }
    const auto best = std::ranges::min_element(timed, {}, [](const Timed& one) { return median(one.all); });
    microseconds = median(best->all);
    return best->candidate;
}

} // namespace tutti::backend::cuda

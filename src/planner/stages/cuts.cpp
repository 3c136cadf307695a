#include "planner/stages/cuts.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti::planner {
namespace {

// Of all cuts into stages of at most `most`, those with the least sum of squares; of several, those with the earliest
// cuts.
Cuts most_even(std::span<const double> times, std::size_t stages, double most) {
    const std::size_t n = times.size();
    constexpr double never = std::numeric_limits<double>::infinity();
    // best[s][i]: of blocks [i, n) in s + 1 stages; next[s][i]: where the second of these begins
    std::vector<std::vector<double>> best(stages, std::vector<double>(n + 1, never));
    std::vector<std::vector<std::size_t>> next(stages, std::vector<std::size_t>(n + 1, n));
    for (std::size_t s = 0; s < stages; ++s)
        for (std::size_t i = 0; i + s < n; ++i) {
            double time = 0;
            for (std::size_t end = i + 1; end + s <= n; ++end) {
                time += times[end - 1];
                if (time > most) break;
                const double rest = s == 0 ? (end == n ? 0 : never) : best[s - 1][end];
                if (time * time + rest >= best[s][i]) continue;
                best[s][i] = time * time + rest;
                next[s][i] = end;
            }
        }
    Cuts cuts;
    for (std::size_t s = stages - 1, i = 0; s > 0; --s) {
        i = next[s][i];
        cuts.push_back(narrow<int>(i));
    }
    return cuts;
}

// The cuts halfway between two, where the stages hold them.
std::optional<Cuts> between(const Cuts& a, const Cuts& b, int blocks, const StageHolds& holds, double most) {
    Cuts cuts;
    for (std::size_t c = 0; c < a.size(); ++c) cuts.push_back((a[c] + b[c] + 1) / 2);
    for (std::size_t stage = 0; stage <= cuts.size(); ++stage) {
        const int first = stage == 0 ? 0 : cuts[stage - 1], end = stage == cuts.size() ? blocks : cuts[stage];
        if (first >= end || !holds(static_cast<int>(stage), first, end, most)) return std::nullopt;
    }
    return cuts;
}

} // namespace

std::optional<Cuts> fill_forward(int blocks, int stages, const StageHolds& holds, double most) {
    Cuts cuts;
    int first = 0;
    for (int stage = 0; stage < stages; ++stage) {
        int low = first, high = blocks - (stages - 1 - stage); // holds [first, low), not beyond high
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (holds(stage, first, middle, most))
                low = middle;
            else
                high = middle - 1;
        }
        if (low == first) return std::nullopt;
        first = low;
        if (stage + 1 < stages) cuts.push_back(first);
    }
    return first == blocks ? std::optional(std::move(cuts)) : std::nullopt;
}

std::optional<Cuts> fill_backward(int blocks, int stages, const StageHolds& holds, double most) {
    Cuts cuts(static_cast<std::size_t>(stages - 1));
    int end = blocks;
    for (int stage = stages - 1; stage > 0; --stage) {
        int low = stage, high = end; // holds [high, end), not before low
        while (low < high) {
            const int middle = (low + high) / 2;
            if (holds(stage, middle, end, most))
                high = middle;
            else
                low = middle + 1;
        }
        if (high == end) return std::nullopt;
        end = high;
        cuts[static_cast<std::size_t>(stage - 1)] = end;
    }
    return holds(0, 0, end, most) ? std::optional(std::move(cuts)) : std::nullopt;
}

std::optional<double> least_bottleneck(int blocks, int stages, const StageHolds& holds, double enough,
                                       double tolerance) {
    if (!fill_forward(blocks, stages, holds, enough)) return std::nullopt;
    double low = 0, high = enough;
    while (high - low > tolerance * high) {
        const double middle = (low + high) / 2;
        if (middle <= low || middle >= high) break;
        (fill_forward(blocks, stages, holds, middle) ? high : low) = middle;
    }
    return high;
}

std::vector<Cuts> balanced_cuts(int blocks, int stages, const StageHolds& holds, double enough, double tolerance) {
    if (stages > blocks) return {};
    if (stages == 1) return {Cuts{}};
    const std::optional<double> least = least_bottleneck(blocks, stages, holds, enough, tolerance);
    if (!least) return {};
    std::vector<Cuts> found = {*fill_forward(blocks, stages, holds, *least)};
    auto add = [&](std::optional<Cuts> cuts) {
        if (cuts && std::ranges::find(found, *cuts) == found.end()) found.push_back(std::move(*cuts));
    };
    const std::optional<Cuts> last = fill_backward(blocks, stages, holds, *least);
    add(last);
    if (last) add(between(found.front(), *last, blocks, holds, *least));
    return found;
}

Cuts even_cuts(int blocks, int stages) {
    Cuts cuts;
    for (int stage = 1; stage < stages; ++stage) cuts.push_back(stage * blocks / stages);
    return cuts;
}

std::vector<Cuts> all_cuts(int blocks, int stages, int most) {
    double count = 1;
    for (int k = 1; k < stages; ++k) count *= static_cast<double>(blocks - stages + k) / k;
    if (count > most + 0.5 || stages > blocks) return {};
    std::vector<Cuts> all;
    Cuts cuts;
    for (int stage = 1; stage < stages; ++stage) cuts.push_back(stage);
    while (true) {
        all.push_back(cuts);
        int c = stages - 2;
        while (c >= 0 && cuts[static_cast<std::size_t>(c)] == blocks - (stages - 1 - c)) --c;
        if (c < 0) return all;
        ++cuts[static_cast<std::size_t>(c)];
        for (int k = c + 1; k < stages - 1; ++k)
            cuts[static_cast<std::size_t>(k)] = cuts[static_cast<std::size_t>(k - 1)] + 1;
    }
}

Seconds time_of(const Block& block, const Speed& speed) {
    const double forward =
        block.forward.flops.count / speed.flops + static_cast<double>(block.forward.bytes.count) / speed.bytes;
    return {3 * forward}; // the backward computes two gradients where the forward computes one result
}

Cuts balance(std::span<const Block> blocks, int stages, const Speed& speed) {
    TUTTI_CHECK(stages > 0, "{} stages", stages);
    if (static_cast<std::size_t>(stages) > blocks.size())
        fail("the model has {}, too few for {}", counted(blocks.size(), "block"), counted(stages, "stage"));
    std::vector<double> times;
    for (const Block& block : blocks) times.push_back(time_of(block, speed).count);
    auto holds = [&](int, int first, int end, double most) {
        return std::accumulate(times.begin() + first, times.begin() + end, 0.0) <= most;
    };
    const double all = std::accumulate(times.begin(), times.end(), 0.0) * (1 + 1e-12);
    const std::optional<double> least = least_bottleneck(narrow<int>(blocks.size()), stages, holds, all);
    TUTTI_CHECK(least, "{} stages do not hold {} blocks in the time of all", stages, blocks.size());
    return most_even(times, static_cast<std::size_t>(stages), *least * (1 + 1e-9));
}

} // namespace tutti::planner

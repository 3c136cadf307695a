// V-Half and V-Min (Qi et al., NeurIPS 2024: controllable memory): a micro-batch takes the same slots as the one
// before, six slots later, so what a rank holds is the time its two stages live divided by six. With F, B and W of one
// slot, rank i runs
//     F of stage i at a·i,   F of the stage above at c1 - b·i,   its B at c2 + c·i,   B of stage i at c3 - d·i;
// the two lifetimes sum to about P(a+b+c+d), whatever the rank, where a+d = b+c. V-Min has all four 1, V-Half a = c
// = 2.
#include "schedule/evaluate.h"
#include "schedule/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace tutti {
namespace {

constexpr int period = 6;

struct Block {
    int a, b, c, d;
    int c1 = 0, c2 = 0, c3 = 0;
    std::array<int, 4> slots(int rank) const { return {a * rank, c1 - b * rank, c2 + c * rank, c3 - d * rank}; }
};

// No two of a rank's four tasks may fall on the same slot, counted modulo the period.
bool collides(const Block& block, int ranks) {
    for (int r = 0; r < ranks; ++r) {
        std::array<bool, period> taken{};
        for (const int slot : block.slots(r)) {
            if (taken[slot % period]) return true;
            taken[slot % period] = true;
        }
    }
    return false;
}

// The tightest offsets that do not collide.
std::optional<Block> tighten(Block block, int ranks) {
    const int last = ranks - 1;
    std::optional<Block> best;
    for (int wait1 = 1; wait1 <= period; ++wait1) {
        for (int wait2 = 1; wait2 <= period; ++wait2) {
            for (int wait3 = 1; wait3 <= period; ++wait3) {
                Block now = block;
                now.c1 = now.a * last + wait1 + now.b * last; // rank P-1 turns round
                now.c2 = now.c1 + wait2;                      // rank 0 goes on with the backward
                now.c3 = now.c2 + now.c * last + wait3 + now.d * last;
                const bool shorter = !best || now.c3 + now.c2 - now.c1 < best->c3 + best->c2 - best->c1;
                if (shorter && !collides(now, ranks)) best = now;
            }
        }
    }
    return best;
}

Orders repeat(const ScheduleParameters& parameters, const Block& block) {
    Orders orders(static_cast<std::size_t>(parameters.ranks));
    for (int r = 0; r < parameters.ranks; ++r) {
        const int below = r, above = 2 * parameters.ranks - 1 - r;
        const std::array<ScheduledTask, 4> tasks = {{{Work::forward, false, 0, static_cast<std::uint16_t>(below), 0},
                                                     {Work::forward, false, 0, static_cast<std::uint16_t>(above), 0},
                                                     {Work::backward, false, 0, static_cast<std::uint16_t>(above), 0},
                                                     {Work::backward, false, 0, static_cast<std::uint16_t>(below), 0}}};
        std::vector<std::pair<int, ScheduledTask>> timed;
        for (int m = 0; m < parameters.micro_batches; ++m) {
            for (std::size_t k = 0; k < tasks.size(); ++k) {
                timed.emplace_back(block.slots(r)[k] + m * period, tasks[k]);
                timed.back().second.micro_batch = m;
            }
        }
        std::sort(timed.begin(), timed.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
        for (const auto& [slot, task] : timed) orders[r].push_back(task);
    }
    return orders;
}

double whole_share(const ScheduleParameters& parameters, const Costs& costs) {
    double most = 0;
    for (int r = 0; r < parameters.ranks; ++r)
        most = std::max(most, costs.stages[r].activation + costs.stages[2 * parameters.ranks - 1 - r].activation);
    return most;
}

// The block's order and greedy ones with few micro-batches in flight, the weight gradients of each filled in: the
// fastest that holds at most `units` whole shares.
Orders best_within(const ScheduleParameters& parameters, const Costs& costs, Block block, double units) {
    const double cap = units * whole_share(parameters, costs);
    Orders best, least;
    double best_time = -1, least_peak = -1;
    auto consider = [&](const Orders& orders) {
        const Evaluation result = evaluate(assemble(parameters, orders), costs);
        const double peak = result.peak_activations();
        if (least_peak < 0 || peak < least_peak) {
            least_peak = peak;
            least = orders;
        }
        const bool fits = peak <= cap * (1 + 1e-9);
        if (fits && (best_time < 0 || result.time < best_time)) {
            best_time = result.time;
            best = orders;
        }
        return fits;
    };
    if (const auto tight = tighten(block, parameters.ranks))
        consider(fill_weight_gradients(parameters, costs, repeat(parameters, *tight), cap));
    const int most = std::min(parameters.micro_batches, 2 * parameters.ranks);
    int too_many = 0; // numbers in flight, one after the other, with which nothing fits
    for (int k = std::max(1, static_cast<int>(units) / 2); k <= most && too_many < 3; ++k) {
        bool any = false;
        for (const int deferred : {0, 1, 2, 4}) {
            const GreedyPolicy policy{.in_flight = k,
                                      .split_backward = true,
                                      .deferred_weight_gradients = deferred,
                                      .recompute = parameters.recompute};
            any = consider(greedy(parameters, costs, policy)) || any;
        }
        too_many = any ? 0 : too_many + 1;
    }
    return best_time < 0 ? least : best;
}

} // namespace

Orders half_memory(const ScheduleParameters& parameters, const Costs& costs) {
    return best_within(parameters, costs, {2, 1, 2, 1}, parameters.ranks / 2.0 + 1);
}

Orders least_memory(const ScheduleParameters& parameters, const Costs& costs) {
    return best_within(parameters, costs, {1, 1, 1, 1}, std::ceil(parameters.ranks / 3.0) + 1);
}

} // namespace tutti

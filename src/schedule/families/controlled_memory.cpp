// V-Half and V-Min (Qi et al., NeurIPS 2024: controllable memory): a micro-batch takes the same slots as the one
// before, six slots later, so what a rank holds is the time its two stages live divided by six. With F, B and W of one
// slot, rank i runs
//     F of stage i at a·i,   F of the stage above at c1 - b·i,   its B at c2 + c·i,   B of stage i at c3 - d·i;
// the two lifetimes sum to about P(a+b+c+d), whatever the rank, where a+d = b+c. V-Min has all four 1, V-Half a = c
// = 2.
#include "schedule/evaluate.h"
#include "schedule/families.h"
#include "schedule/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace tutti::schedule {
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
// fastest that holds at most `units` whole shares. Which it is shows in the beginning of a long step; the best of
// these are then made whole.
class WithinShares {
  public:
    WithinShares(const ScheduleParameters& parameters, const Costs& costs, const Block& block, double units)
        : p_(parameters), beginning_(parameters), costs_(costs), block_(tighten(block, parameters.ranks)),
          cap_(units * whole_share(parameters, costs)) {
        beginning_.micro_batches = telling_micro_batches(parameters);
        least_in_flight_ = std::max(1, static_cast<int>(units) / 2);
    }

    Orders best() {
        if (block_) consider(std::nullopt);
        const int most = std::min(p_.micro_batches, 2 * p_.ranks), step = std::max(1, p_.ranks / 4);
        int too_many = 0; // numbers in flight, one after the other, with which nothing fits
        for (int k = least_in_flight_; k <= most && too_many < (step > 1 ? 2 : 3); k += step) {
            bool any = false;
            for (const int deferred : {0, 1, 2, 4}) any = consider(policy_of(k, deferred)) || any;
            too_many = any ? 0 : too_many + 1;
        }
        sort_tried();
        for (int by = step / 2; by > 0; by /= 2) { // what lies between
            if (!tried_.front().policy) break;
            const GreedyPolicy near = *tried_.front().policy;
            for (const int k : {near.in_flight - by, near.in_flight + by})
                if (k >= 1 && k <= most) consider(policy_of(k, near.deferred_weight_gradients));
            sort_tried();
        }
        return fastest_in_full();
    }

  private:
    struct Tried {
        std::optional<GreedyPolicy> policy; // none: the block's order
        double over = 0, time = 0;          // what it holds beyond the cap
        std::pair<double, double> by_promise() const { return {over, time}; }
    };

    GreedyPolicy policy_of(int in_flight, int deferred) const {
        return {.in_flight = in_flight,
                .split_backward = true,
                .deferred_weight_gradients = deferred,
                .recompute = p_.recompute};
    }

    Orders orders_of(const ScheduleParameters& parameters, const std::optional<GreedyPolicy>& policy) const {
        if (policy) return greedy_orders(parameters, costs_, *policy);
        return fill_weight_gradients(parameters, costs_, repeat(parameters, *block_), cap_);
    }

    Tried judge(const ScheduleParameters& parameters, const Orders& orders, std::optional<GreedyPolicy> policy) const {
        const Evaluation result = evaluate(assemble(parameters, orders), costs_);
        const double peak = result.peak_activations();
        return {std::move(policy), peak <= cap_ * (1 + 1e-9) ? 0 : peak, result.time};
    }

    void sort_tried() { std::ranges::stable_sort(tried_, {}, &Tried::by_promise); }

    bool consider(std::optional<GreedyPolicy> policy) { // whether it fits
        tried_.push_back(judge(beginning_, orders_of(beginning_, policy), policy));
        return tried_.back().over == 0;
    }

    Orders fastest_in_full() const {
        constexpr std::size_t finalists = 3;
        Orders best;
        std::optional<Tried> known;
        for (std::size_t i = 0; i < std::min(finalists, tried_.size()); ++i) {
            Orders orders = orders_of(p_, tried_[i].policy);
            if (p_.micro_batches == beginning_.micro_batches) return orders; // judged in full already
            Tried now = judge(p_, orders, tried_[i].policy);
            if (known && now.by_promise() >= known->by_promise()) continue;
            known = std::move(now);
            best = std::move(orders);
        }
        return best;
    }

    const ScheduleParameters& p_;
    ScheduleParameters beginning_;
    const Costs& costs_;
    std::optional<Block> block_;
    double cap_;
    int least_in_flight_ = 1;
    std::vector<Tried> tried_{};
};

Orders half_memory(ScheduleParameters& parameters, const Costs& costs) {
    return WithinShares(parameters, costs, {2, 1, 2, 1}, parameters.ranks / 2.0 + 1).best();
}

Orders least_memory(ScheduleParameters& parameters, const Costs& costs) {
    return WithinShares(parameters, costs, {1, 1, 1, 1}, std::ceil(parameters.ranks / 3.0) + 1).best();
}

} // namespace

Family v_half() {
    return {
        .name = "v-half",
        .description = "as zb-v with half the activations of 1f1b, for some bubble",
        .shape = {.stages_per_rank = 2, .placement = StagePlacement::wave, .split_backward = true},
        .make = half_memory,
        .follows_costs = true,
        .variants = [](const ScheduleParameters& plain) { return with_stages(plain, {2}); },
        .search_turn = 15,
    };
}

Family v_min() {
    return {
        .name = "v-min",
        .description = "as zb-v with a third of the activations of 1f1b; sensitive to unequal F, B, W",
        .shape = {.stages_per_rank = 2, .placement = StagePlacement::wave, .split_backward = true},
        .make = least_memory,
        .follows_costs = true,
        .variants = [](const ScheduleParameters& plain) { return with_stages(plain, {2}); },
        .search_turn = 16,
    };
}

} // namespace tutti::schedule

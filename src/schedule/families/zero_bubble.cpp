// Zero-bubble schedules (Qi et al., ICLR 2024): the backward is split, and weight gradients, which nobody waits for, go
// where a rank would idle.
#include "schedule/generate.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

class Writer {
  public:
    Writer(Order& order, int stage) : order_(order), stage_(static_cast<std::uint16_t>(stage)) {}
    void forward() { add(Work::forward, forwards_); }
    void backward() { add(Work::backward, backwards_); }
    void weight_gradient() { add(Work::weight_gradient, weight_gradients_); }
    int forwards() const { return forwards_; }
    int backwards() const { return backwards_; }
    int weight_gradients() const { return weight_gradients_; }

  private:
    void add(Work work, int& count) { order_.push_back({work, false, 0, stage_, count++}); }
    Order& order_;
    std::uint16_t stage_;
    int forwards_ = 0, backwards_ = 0, weight_gradients_ = 0;
};

// With slack 1 rank r starts P-r forwards as in 1F1B and leaves r weight gradients for later, so that every rank holds
// P micro-batches; the last backward then reaches rank 0 after M(F+B) + (M-P)W + (P-1)(F+B), and one W follows. With
// slack 2 it starts 2(P-r)-1 and leaves 2r, holding 2P-1; no rank waits where F = B = W.
Orders zero_bubble(const ScheduleParameters& parameters, int slack) {
    const int ranks = parameters.ranks, count = parameters.micro_batches;
    Orders orders(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
        const int ahead = std::min(slack * (ranks - r) - (slack - 1), count);
        const int late = slack * r;
        Writer write(orders[r], r);
        for (int m = 0; m < ahead; ++m) write.forward();
        for (int m = 0; m < count; ++m) {
            write.backward();
            if (m >= late) write.weight_gradient();
            if (write.forwards() < count) write.forward();
        }
        while (write.weight_gradients() < count) write.weight_gradient();
    }
    return orders;
}

// Rank r holds stages r and 2P-1-r, so that the first micro-batch comes back to rank 0 before its backward begins there
// and every rank holds 2P pieces at most. No rank waits where F = B = W. The order is written for at least 2P-1
// micro-batches; those beyond the count are left out.
Orders zero_bubble_v(const ScheduleParameters& parameters) {
    const int ranks = parameters.ranks;
    const int count = std::max(2 * ranks - 1, parameters.micro_batches);
    Orders orders(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
        Writer down(orders[r], r), up(orders[r], 2 * ranks - 1 - r);
        for (int i = 0; i < 2 * (ranks - r) - 1; ++i) down.forward();
        for (int i = 0; i < r; ++i) {
            up.forward();
            down.forward();
        }
        for (int i = 0; i < ranks - r; ++i) {
            up.forward();
            up.backward();
            up.weight_gradient();
        }
        while (up.forwards() < down.forwards() || down.forwards() < count) {
            if (down.forwards() < count) down.forward();
            down.backward();
            down.weight_gradient();
            up.forward();
            up.backward();
            up.weight_gradient();
        }
        for (int i = 0; i < r; ++i) {
            down.backward();
            up.backward();
        }
        for (int i = 0; i < ranks - r; ++i) {
            down.backward();
            down.weight_gradient();
        }
        while (up.weight_gradients() < up.backwards()) up.weight_gradient();
        while (down.weight_gradients() < down.backwards()) down.weight_gradient();
        std::erase_if(orders[r], [&](const ScheduledTask& t) { return t.micro_batch >= parameters.micro_batches; });
    }
    return orders;
}

} // namespace

Family zb_1p() {
    return {
        .name = "zb-1p",
        .description = "split backward, weight gradients where ranks would idle; holds what 1f1b holds",
        .shape = {.split_backward = true},
        .make = [](ScheduleParameters& p, const Costs&) { return zero_bubble(p, 1); },
        .in_flight = one_per_rank,
        .search_turn = 3,
    };
}

Family zb_2p() {
    return {
        .name = "zb-2p",
        .description = "no bubble where F = B = W, for twice the activations",
        .shape = {.split_backward = true},
        .make = [](ScheduleParameters& p, const Costs&) { return zero_bubble(p, 2); },
        .in_flight = [](const ScheduleParameters& p) { return 2 * p.ranks - 1; },
        .search_turn = 4,
    };
}

Family zb_v() {
    return {
        .name = "zb-v",
        .description = "no bubble where F = B = W, with the activations of 1f1b: stages down the ranks and back",
        .shape = {.stages_per_rank = 2, .placement = StagePlacement::wave, .split_backward = true},
        .make = [](ScheduleParameters& p, const Costs&) { return zero_bubble_v(p); },
        .variants = [](const ScheduleParameters& plain) { return with_stages(plain, {2}); },
        .search_turn = 8,
    };
}

} // namespace tutti::schedule

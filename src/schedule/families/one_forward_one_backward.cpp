// 1F1B (PipeDream-Flush, DAPPLE): the order that others are measured against, and two that recompute at other times.
#include "schedule/generate.h"

#include <algorithm>

namespace tutti::schedule {

// As many forwards as it takes until the first gradient comes back, then backwards and forwards in turn.
Orders one_forward_one_backward_orders(const ScheduleParameters& parameters) {
    Orders orders(static_cast<std::size_t>(parameters.ranks));
    const int count = parameters.micro_batches;
    for (int r = 0; r < parameters.ranks; ++r) {
        const int ahead = std::min(parameters.ranks - r, count);
        for (int m = 0; m < ahead; ++m) orders[r].push_back(make_task(Work::forward, r, m));
        for (int m = 0; m < count; ++m) {
            orders[r].push_back(make_task(Work::full_backward, r, m));
            if (m + ahead < count) orders[r].push_back(make_task(Work::forward, r, m + ahead));
        }
    }
    return orders;
}

void recompute_early(ScheduleParameters& parameters) {
    std::replace(parameters.recompute.begin(), parameters.recompute.end(), Recompute::on_gradient, Recompute::early);
}

Family one_forward_one_backward() {
    return {
        .name = "1f1b",
        .description = "backwards as soon as they can be: P micro-batches in flight instead of M",
        .make = [](ScheduleParameters& p, const Costs&) { return one_forward_one_backward_orders(p); },
        .in_flight = one_per_rank,
        .search_turn = 1,
    };
}

Family early_recompute() {
    return {
        .name = "early-recompute",
        .description = "1f1b that recomputes while it waits for the gradient",
        .make =
            [](ScheduleParameters& p, const Costs&) {
                recompute_early(p);
                return one_forward_one_backward_orders(p);
            },
        .in_flight = one_per_rank,
        .recomputes_early = true,
        .search_turn = 5,
    };
}

Family last_stage_without_recompute() {
    return {
        .name = "last-stage-without-recompute",
        .description = "early-recompute, and the last stage keeps its activations",
        .make =
            [](ScheduleParameters& p, const Costs&) {
                recompute_early(p);
                p.recompute.back() = Recompute::never;
                return one_forward_one_backward_orders(p);
            },
        .in_flight = one_per_rank,
        .recomputes_early = true,
        .search_turn = 6,
    };
}

} // namespace tutti::schedule

// GPipe (Huang et al., NeurIPS 2019).
#include "schedule/generate.h"

namespace tutti::schedule {
namespace {

Orders forwards_then_backwards(const ScheduleParameters& parameters) {
    Orders orders(static_cast<std::size_t>(parameters.ranks));
    for (int r = 0; r < parameters.ranks; ++r) {
        for (int m = 0; m < parameters.micro_batches; ++m) orders[r].push_back(make_task(Work::forward, r, m));
        for (int m = 0; m < parameters.micro_batches; ++m) orders[r].push_back(make_task(Work::full_backward, r, m));
    }
    return orders;
}

} // namespace

Family gpipe() {
    return {
        .name = "gpipe",
        .description = "all forwards, then all backwards",
        .make = [](ScheduleParameters& p, const Costs&) { return forwards_then_backwards(p); },
        .in_flight = [](const ScheduleParameters& p) { return p.micro_batches; },
        .variants =
            [](const ScheduleParameters& plain) {
                const bool holds_few = plain.micro_batches <= 2 * plain.ranks;
                return holds_few ? std::vector{plain} : std::vector<ScheduleParameters>{};
            },
        .search_turn = 7,
    };
}

} // namespace tutti::schedule

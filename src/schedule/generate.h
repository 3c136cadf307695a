// What the files of families/ make their orders of. Internal to this folder. Parameters are resolved here.
#pragma once

#include "schedule/family.h"

#include <vector>

namespace tutti::schedule {

Schedule assemble(const ScheduleParameters& parameters, const Orders& orders);

inline ScheduledTask make_task(Work work, int stage, int micro_batch) {
    return {work, false, 0, static_cast<std::uint16_t>(stage), micro_batch};
}

// list_scheduler.cpp: every rank starts, of what it could start first, what its policy ranks highest.
struct GreedyPolicy {
    int in_flight = 0;                  // per model replica, admitted at stage 0
    std::vector<int> in_flight_ranks{}; // per rank, forwards without their backward; empty: no limit
    std::vector<bool> forward_first{};  // per rank: forwards before backwards; empty: backwards first
    bool split_backward = false;
    int deferred_weight_gradients = -1;
    bool shallow_first = false; // of several forwards, that of the earlier stage
    std::vector<Recompute> recompute{};
};
GreedyPolicy policy_of(const ScheduleParameters& parameters);
Orders greedy_orders(const ScheduleParameters& parameters, const Costs& costs, const GreedyPolicy& policy);

// fill_weight_gradients.cpp: puts the weight gradients of an order of forwards and backwards where a rank would wait,
// and before a forward that would exceed what it may hold.
Orders fill_weight_gradients(const ScheduleParameters& parameters, const Costs& costs, const Orders& orders,
                             double cap);

// families/one_forward_one_backward.cpp
Orders one_forward_one_backward_orders(const ScheduleParameters& parameters);
void recompute_early(ScheduleParameters& parameters); // where it would on the gradient

} // namespace tutti::schedule

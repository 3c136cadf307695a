// What families.cpp makes schedules of: orders per rank, from templates or from a policy. Internal to this folder.
// Parameters are resolved here. Orders say nothing of recomputation unless they place it themselves; assembling
// adds it as the parameters say.
#pragma once

#include "schedule/costs.h"
#include "schedule/schedule.h"

#include <vector>

namespace tutti::schedule {

using Order = std::vector<ScheduledTask>;
using Orders = std::vector<Order>; // per rank

Schedule assemble(const ScheduleParameters& parameters, const Orders& orders);

// templates.cpp
Orders gpipe(const ScheduleParameters& parameters);
Orders one_forward_one_backward(const ScheduleParameters& parameters);
Orders interleaved(const ScheduleParameters& parameters);

// zero_bubble.cpp
Orders zero_bubble(const ScheduleParameters& parameters, int slack); // slack 1: zb-1p, 2: zb-2p
Orders zero_bubble_v(const ScheduleParameters& parameters);

// dual_pipe.cpp
Orders dual_pipe(const ScheduleParameters& parameters);
Orders dual_pipe_v(const ScheduleParameters& parameters);

// greedy.cpp: every rank starts, of what it could start first, what its policy ranks highest.
struct GreedyPolicy {
    int in_flight = 0;                  // per copy, admitted at stage 0
    std::vector<int> in_flight_ranks{}; // per rank, forwards without their backward; empty: no limit
    std::vector<bool> forward_first{};  // per rank: forwards before backwards; empty: backwards first
    bool split_backward = false;
    int deferred_weight_gradients = -1;
    bool shallow_first = false; // of several forwards, that of the earlier stage
    std::vector<Recompute> recompute{};
};
Orders greedy(const ScheduleParameters& parameters, const Costs& costs, const GreedyPolicy& policy);

// fill.cpp: puts the weight gradients of an order of forwards and backwards where a rank would wait, and before a
// forward that would exceed what it may hold.
Orders fill_weight_gradients(const ScheduleParameters& parameters, const Costs& costs, const Orders& orders,
                             double cap);

// building_block.cpp: v-half and v-min
Orders half_memory(const ScheduleParameters& parameters, const Costs& costs);
Orders least_memory(const ScheduleParameters& parameters, const Costs& costs);

// named_orders.cpp. Those that decide on recomputation write it into the parameters.
Orders greedy_within_cap(ScheduleParameters& parameters, const Costs& costs);
Orders chimera(ScheduleParameters& parameters, const Costs& costs);
Orders mixpipe(ScheduleParameters& parameters, const Costs& costs);
Orders hanayo(ScheduleParameters& parameters, const Costs& costs);
Orders early_recompute(ScheduleParameters& parameters, const Costs& costs);
Orders last_stage_without_recompute(ScheduleParameters& parameters, const Costs& costs);
void recompute_early(ScheduleParameters& parameters); // where it would on the gradient

// shifted.cpp
Orders shifted_critical_path(ScheduleParameters& parameters, const Costs& costs);

} // namespace tutti::schedule

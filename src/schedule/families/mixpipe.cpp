// MixPipe (Zhang et al., DAC 2023).
#include "schedule/best_orders.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

Orders with_fastest_in_flight(ScheduleParameters& parameters, const Costs& costs) {
    if (parameters.in_flight > 0) return greedy_orders(parameters, costs, policy_of(parameters));
    ScheduleParameters beginning = parameters; // of a long step, which shows how many are best
    beginning.micro_batches = telling_micro_batches(parameters);
    BestOrders best(beginning, costs);
    const int most = std::min(parameters.ranks, parameters.micro_batches / 2);
    for (int k = std::min(most, (parameters.ranks + 1) / 2); k <= most; ++k) {
        GreedyPolicy policy = policy_of(parameters);
        policy.in_flight = k;
        if (best.consider(greedy_orders(beginning, costs, policy))) parameters.in_flight = k;
    }
    return greedy_orders(parameters, costs, policy_of(parameters));
}

} // namespace

Family mixpipe() {
    return {
        .name = "mixpipe",
        .description = "two model replicas, with as many micro-batches in flight as is fastest",
        .needs = "M even",
        .shape = {.model_replicas = 2, .placement = StagePlacement::mirrored},
        .free = {.in_flight = true},
        .make = with_fastest_in_flight,
        .follows_costs = true,
        .search_turn = 13,
    };
}

} // namespace tutti::schedule

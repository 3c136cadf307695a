// Chimera (Li and Hoefler, SC 2021).
#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "schedule/best_orders.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

// Which forwards fit between two backwards depends on whether a backward takes as long as a forward or twice as long.
Orders from_both_ends(ScheduleParameters& parameters, const Costs& costs) {
    BestOrders best(parameters, costs);
    for (const double backward : {2, 1})
        best.consider(greedy_orders(parameters, nominal_costs(parameters, backward), policy_of(parameters)));
    return best.take();
}

void check_directions(const ScheduleParameters& p) {
    if (p.model_replicas % 2 != 0)
        fail("chimera needs an even number of model replicas, half of them in each direction: {} is odd, {} would do",
             p.model_replicas, p.model_replicas + 1);
    check_equal_shares(p);
    if (p.ranks % p.model_replicas != 0)
        fail("chimera needs model replicas that divide the pipe ranks: {} on {} do not, {} pipe ranks would",
             counted_replicas(p.model_replicas), counted(p.ranks, "pipe rank"), round_up(p.ranks, p.model_replicas));
}

} // namespace

Family chimera() {
    return {
        .name = "chimera",
        .description = "2 (or 2f) model replicas in opposite directions fill each other's bubbles",
        .needs = "P and M multiples of the replicas, which are even",
        .shape = {.model_replicas = 2, .placement = StagePlacement::mirrored},
        .free = {.model_replicas = true, .in_flight = true},
        .make = from_both_ends,
        .in_flight = [](const ScheduleParameters& p) { return std::max(1, p.ranks / p.model_replicas); },
        .check = check_directions,
        .search_turn = 11,
    };
}

} // namespace tutti::schedule

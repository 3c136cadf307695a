// Hanayo (Liu et al., SC 2023).
#include "base/error.h"
#include "schedule/best_orders.h"

namespace tutti::schedule {
namespace {

Orders in_waves(ScheduleParameters& parameters, const Costs& costs) {
    BestOrders best(parameters, costs);
    for (const bool shallow_first : {false, true}) {
        GreedyPolicy policy = policy_of(parameters);
        policy.shallow_first = shallow_first;
        best.consider(greedy_orders(parameters, nominal_costs(parameters), policy));
    }
    return best.take();
}

void check_waves(const ScheduleParameters& p) {
    if (p.stages_per_rank % 2 != 0)
        fail("hanayo needs an even number of stages per rank, two per wave: {} is not, {} would be", p.stages_per_rank,
             p.stages_per_rank + 1);
}

} // namespace

Family hanayo() {
    return {
        .name = "hanayo",
        .description = "V/2 waves of stages over the ranks and back, with one model replica",
        .needs = "V even",
        .shape = {.stages_per_rank = 2, .placement = StagePlacement::wave},
        .free = {.stages = true, .in_flight = true},
        .make = in_waves,
        .in_flight = one_per_rank,
        .check = check_waves,
        .variants =
            [](const ScheduleParameters& plain) {
                return with_stages(plain, {2, 4});
            },
        .search_turn = 12,
    };
}

} // namespace tutti::schedule

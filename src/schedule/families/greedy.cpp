// Greedy: the list scheduler itself, with all that it can be told.
#include "schedule/best_orders.h"

namespace tutti::schedule {
namespace {

// Fewer and fewer micro-batches in flight, each with weight gradients deferred as asked for and not at all.
Orders greedy_within_cap(ScheduleParameters& parameters, const Costs& costs) {
    if (parameters.memory_cap == 0) return greedy_orders(parameters, costs, policy_of(parameters));
    BestOrders best(parameters, costs);
    GreedyPolicy chosen = policy_of(parameters);
    for (int k = parameters.in_flight; k >= 1; --k) {
        for (const bool defers : {true, false}) {
            if (!defers && !parameters.split_backward) continue;
            GreedyPolicy policy = policy_of(parameters);
            policy.in_flight = k;
            if (!defers) policy.deferred_weight_gradients = 0;
            if (best.consider(greedy_orders(parameters, costs, policy))) chosen = policy;
        }
    }
    parameters.in_flight = chosen.in_flight;
    parameters.deferred_weight_gradients = chosen.deferred_weight_gradients;
    return best.take();
}

// One stage per rank, or two as a wave; more or fewer micro-batches in flight.
std::vector<ScheduleParameters> split_variants(const ScheduleParameters& plain) {
    std::vector<ScheduleParameters> list;
    const int ranks = plain.ranks;
    for (const bool wave : {false, true})
        for (const int k : {(ranks + 2) / 3, (ranks + 1) / 2, 3 * ranks / 4, ranks, 3 * ranks / 2, 2 * ranks}) {
            if (k < 1 || k > plain.micro_batches) continue;
            ScheduleParameters& variant = list.emplace_back(plain);
            variant.stages_per_rank = wave ? 2 : 1;
            variant.in_flight = k;
            variant.split_backward = true;
            if (wave) variant.placement = StagePlacement::wave;
        }
    return list;
}

} // namespace

Family greedy() {
    return {
        .name = "greedy",
        .description = "each rank starts what it can, backwards first; any V, replicas, placement, K and splitting",
        .needs = "M a multiple of the replicas",
        .free = {.stages = true, .model_replicas = true, .in_flight = true, .placement = true},
        .make = greedy_within_cap,
        .in_flight = one_per_rank,
        .follows_costs = true,
        .fits_any_cap = true,
        .variants = split_variants,
        .search_turn = 17,
    };
}

} // namespace tutti::schedule

// Named orders that a policy finds: greedy scheduling with the right parameters, or 1F1B with other recomputation.
#include "schedule/evaluate.h"
#include "schedule/families.h"
#include "schedule/generate.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

// The fastest of several orders that stays within the cap; where none does, the one that holds least, for the error.
class Best {
  public:
    Best(const ScheduleParameters& parameters, const Costs& costs) : p_(parameters), costs_(costs) {}
    bool consider(Orders orders) { // whether it is the best so far
        const Evaluation result = evaluate(assemble(p_, orders), costs_);
        const double excess =
            p_.memory_cap > 0 ? std::max(0.0, result.peak_activations() - p_.memory_cap * (1 + 1e-9)) : 0;
        if (!orders_.empty() && std::pair(excess, result.time) >= std::pair(excess_, time_)) return false;
        orders_ = std::move(orders);
        excess_ = excess;
        time_ = result.time;
        return true;
    }
    Orders take() { return std::move(orders_); }

  private:
    const ScheduleParameters& p_;
    const Costs& costs_;
    Orders orders_{};
    double excess_ = 0, time_ = 0;
};

// Equal stages, for orders that do not follow the costs of the stages.
Costs nominal_costs(const ScheduleParameters& parameters, double backward = 2) {
    return uniform_costs(parameters, {.forward = 1, .backward = backward / 2, .weight_gradient = backward / 2});
}

GreedyPolicy policy_of(const ScheduleParameters& parameters) {
    return {.in_flight = parameters.in_flight,
            .split_backward = parameters.split_backward,
            .deferred_weight_gradients = parameters.deferred_weight_gradients,
            .recompute = parameters.recompute};
}

} // namespace

void recompute_early(ScheduleParameters& parameters) {
    std::replace(parameters.recompute.begin(), parameters.recompute.end(), Recompute::on_gradient, Recompute::early);
}

// Fewer and fewer micro-batches in flight, each with weight gradients deferred as asked for and not at all.
Orders greedy_within_cap(ScheduleParameters& parameters, const Costs& costs) {
    if (parameters.memory_cap == 0) return greedy(parameters, costs, policy_of(parameters));
    Best best(parameters, costs);
    GreedyPolicy chosen = policy_of(parameters);
    for (int k = parameters.in_flight; k >= 1; --k) {
        for (const bool defers : {true, false}) {
            if (!defers && !parameters.split_backward) continue;
            GreedyPolicy policy = policy_of(parameters);
            policy.in_flight = k;
            if (!defers) policy.deferred_weight_gradients = 0;
            if (best.consider(greedy(parameters, costs, policy))) chosen = policy;
        }
    }
    parameters.in_flight = chosen.in_flight;
    parameters.deferred_weight_gradients = chosen.deferred_weight_gradients;
    return best.take();
}

// Which forwards fit between two backwards depends on whether a backward takes as long as a forward or twice as long.
Orders chimera(ScheduleParameters& parameters, const Costs& costs) {
    Best best(parameters, costs);
    for (const double backward : {2, 1})
        best.consider(greedy(parameters, nominal_costs(parameters, backward), policy_of(parameters)));
    return best.take();
}

Orders mixpipe(ScheduleParameters& parameters, const Costs& costs) {
    if (parameters.in_flight > 0) return greedy(parameters, costs, policy_of(parameters));
    ScheduleParameters beginning = parameters; // of a long step, which shows how many are best
    beginning.micro_batches = telling_micro_batches(parameters);
    Best best(beginning, costs);
    const int most = std::min(parameters.ranks, parameters.micro_batches / 2);
    for (int k = std::min(most, (parameters.ranks + 1) / 2); k <= most; ++k) {
        GreedyPolicy policy = policy_of(parameters);
        policy.in_flight = k;
        if (best.consider(greedy(beginning, costs, policy))) parameters.in_flight = k;
    }
    return greedy(parameters, costs, policy_of(parameters));
}

Orders hanayo(ScheduleParameters& parameters, const Costs& costs) {
    Best best(parameters, costs);
    for (const bool shallow_first : {false, true}) {
        GreedyPolicy policy = policy_of(parameters);
        policy.shallow_first = shallow_first;
        best.consider(greedy(parameters, nominal_costs(parameters), policy));
    }
    return best.take();
}

Orders early_recompute(ScheduleParameters& parameters, const Costs&) {
    recompute_early(parameters);
    return one_forward_one_backward(parameters);
}

Orders last_stage_without_recompute(ScheduleParameters& parameters, const Costs&) {
    recompute_early(parameters);
    parameters.recompute.back() = Recompute::never;
    return one_forward_one_backward(parameters);
}

} // namespace tutti::schedule

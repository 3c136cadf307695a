// BestOrders: the fastest of several orders that stays within the memory cap; where none does, the one with the fewest
// activations, for the error.
#pragma once

#include "schedule/evaluate.h"
#include "schedule/generate.h"

#include <algorithm>
#include <utility>

namespace tutti::schedule {

class BestOrders {
  public:
    BestOrders(const ScheduleParameters& parameters, const Costs& costs) : p_(parameters), costs_(costs) {}
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
inline Costs nominal_costs(const ScheduleParameters& parameters, double backward = 2) {
    return uniform_costs(parameters, {.forward = 1, .backward = backward / 2, .weight_gradient = backward / 2});
}

} // namespace tutti::schedule

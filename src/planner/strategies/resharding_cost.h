// ReshardingCost: the seconds of bringing a value from the sharding in which it is given to the one in which it is
// wanted, along all axes of the tensor mesh, and of bringing its gradient back.
#pragma once

#include "costs/cost_model.h"
#include "planner/strategies/menu.h"
#include "planner/strategies/problem.h"

namespace tutti::planner::strategies {

class ReshardingCost {
  public:
    // Axes outermost first: ranks that are neighbours share the last, and the first devices of the cluster are taken.
    ReshardingCost(const costs::CostModel& costs, std::vector<int> axes);

    std::span<const int> axes() const { return axes_; }
    int ranks() const;
    const costs::CostModel& costs() const { return costs_; }

    // In nanoseconds; forbidden where something would have to become partial again.
    Amount seconds(const TensorType& whole, const States& from, const States& to) const;
    // One collective along an axis; `bytes` are of the whole tensor as the other axes leave it.
    Amount seconds(costs::Collective what, std::int64_t bytes, std::size_t axis) const;

  private:
    const costs::CostModel& costs_;
    std::vector<int> axes_;
    std::vector<costs::GroupShape> shapes_; // per axis
};

// Whether some axis gathers the value: split before, whole after.
bool gathers(const States& from, const States& to);
// In which states the gradient of a value is wanted by the operator that made it.
States gradient_wanted(const States& value);
// In which an operator gives the gradient of an input that it takes in `input`, while it is shared by `split`: a loop
// that the input lacks is summed over.
States gradient_given(const States& input, std::span<const std::string> split);

Amount nanoseconds(double seconds);

} // namespace tutti::planner::strategies

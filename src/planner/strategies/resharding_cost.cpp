#include "planner/strategies/resharding_cost.h"

#include "base/error.h"
#include "sharding/operator_strategies.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tutti::planner::strategies {

Amount nanoseconds(double seconds) { return static_cast<Amount>(std::llround(seconds * 1e9)); }

ReshardingCost::ReshardingCost(const costs::CostModel& costs, std::vector<int> axes)
    : costs_(costs), axes_(std::move(axes)) {
    const std::vector<costs::ClusterDevice> devices = costs.cluster().devices();
    if (devices.empty()) fail("the cluster has no devices");
    const int last = static_cast<int>(devices.size()) - 1; // more ranks than devices: those beyond share the last
    int stride = ranks();
    for (int size : axes_) {
        stride /= size;
        std::vector<int> members;
        for (int i = 0; i < size; ++i) members.push_back(std::min(i * stride, last));
        shapes_.push_back(costs::shape_of(costs.cluster(), devices, members));
    }
}

int ReshardingCost::ranks() const { return std::accumulate(axes_.begin(), axes_.end(), 1, std::multiplies<>()); }

Amount ReshardingCost::seconds(costs::Collective what, std::int64_t bytes, std::size_t axis) const {
    if (axes_[axis] == 1) return 0;
    return nanoseconds(costs_.collective_seconds(what, Bytes{bytes}, shapes_[axis], 0));
}

Amount ReshardingCost::seconds(const TensorType& whole, const States& from, const States& to) const {
    Amount total = 0;
    States now = from;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
        if (from[a] == to[a]) continue;
        if (to[a] == partial) return forbidden;
        States others = now; // what this axis' ranks have together
        others[a] = replicated;
        const std::int64_t bytes = local_bytes(whole, others, axes_);
        now[a] = to[a];
        if (from[a] == replicated) continue; // a view
        const costs::Collective what =
            from[a] == partial
                ? (to[a] == replicated ? costs::Collective::all_reduce : costs::Collective::reduce_scatter)
                : (to[a] == replicated ? costs::Collective::all_gather : costs::Collective::all_to_all);
        total += seconds(what, bytes, a);
    }
    return total;
}

bool gathers(const States& from, const States& to) {
    for (std::size_t a = 0; a < from.size(); ++a)
        if (from[a] >= 0 && to[a] != from[a]) return true;
    return false;
}

States gradient_wanted(const States& value) {
    States states = value;
    for (AxisState& state : states)
        if (state == partial) state = replicated;
    return states;
}

States gradient_given(const States& input, std::span<const std::string> split) {
    States states = input;
    for (std::size_t a = 0; a < states.size(); ++a) {
        const bool loop = split[a] != sharding::on_every_rank && split[a] != sharding::on_partial_sums;
        if (states[a] == partial)
            states[a] = replicated;
        else if (states[a] == replicated && loop)
            states[a] = partial;
    }
    return states;
}

} // namespace tutti::planner::strategies

#include "sharding/value_states.h"

#include <limits>

namespace tutti::sharding {

bool ValueStates::is_sharded(ValueId value) const {
    const Parameter* parameter = graph_.parameter_of(value);
    return parameter != nullptr && !sharded_.empty() && sharded_[static_cast<std::size_t>(parameter->stored)];
}

// The sharding of a parameter that no node splits: along its slowest dimension that divides evenly, or else the slowest
// that is large enough.
Sharding ValueStates::even_shard(ValueId value) const {
    const Shape& shape = graph_.shape(value);
    const Shape& strides = graph_.value(value).layout.strides;
    auto better = [&](int a, int b) {
        const bool even = shape[a] % size_ == 0, other = shape[b] % size_ == 0;
        return even != other ? even : strides[a] > strides[b];
    };
    int best = -1;
    for (int d = 0; d < shape.rank(); ++d)
        if (shape[d] >= size_ && (best < 0 || better(d, best))) best = d;
    return best < 0 ? Sharding{} : Sharding::split(best, even_parts(shape[best], 1, size_));
}

Sharding ValueStates::of_parameter(ValueId value) const {
    if (!is_open(value)) return there_[index(value)][0].state;
    return is_sharded(value) ? even_shard(value) : Sharding{};
}

const Sharding& ValueStates::of(ValueId value) const {
    const std::vector<Representation>& there = there_[index(value)];
    return there[0].state.is_partial() && there.size() > 1 ? there[1].state : there[0].state;
}

double ValueStates::cost(ValueId value, const Sharding& wanted) const {
    const Bytes bytes = graph_.type(value).bytes();
    if (is_open(value)) return is_sharded(value) && !wanted.is_split() ? static_cast<double>(bytes.count) : 0;
    const std::vector<Representation>& there = there_[index(value)];
    const Sharding& from = there[cheapest(there, wanted, bytes, size_, backward_)].state;
    const double cost = communication(from, wanted, bytes, size_);
    const bool sends_weights = is_parameter(value) && cost > 0 && !is_sharded(value);
    return sends_weights ? std::numeric_limits<double>::infinity() : cost;
}

void ValueStates::bring(ValueId value, const Sharding& wanted, bool keep) {
    std::vector<Representation>& there = there_[index(value)];
    if (there.empty()) there.push_back({is_sharded(value) && !wanted.is_split() ? even_shard(value) : wanted});
    std::size_t at = cheapest(there, wanted, graph_.type(value).bytes(), size_, backward_);
    for (const Sharding& state : route(there[at].state, wanted)) {
        there.push_back(resharded(there[at], state, backward_));
        at = there.size() - 1;
    }
    if (keep && !is_parameter(value)) there[at].gathered = false;
}

} // namespace tutti::sharding

// ValueStates: the states that the values of a graph have while an assignment is chosen node by node, and the cost of
// resharding them.
#pragma once

#include "sharding/reshard.h"
#include "sharding/shard.h"

#include <vector>

namespace tutti::sharding {

class ValueStates {
  public:
    // `sharded` as ShardOptions has it.
    ValueStates(const Graph& graph, int size, const std::vector<bool>& sharded)
        : graph_(graph), size_(size), sharded_(sharded), there_(graph.values().size()) {}

    void begin_backward() { backward_ = true; }
    bool in_backward() const { return backward_; }

    bool is_parameter(ValueId value) const { return graph_.parameter_of(value) != nullptr; }
    bool is_sharded(ValueId value) const; // a parameter that is sharded where no node splits it
    // A parameter that nothing has used yet may be owned in any way.
    bool is_open(ValueId value) const { return there_[index(value)].empty(); }
    bool is_partial(ValueId value) const { return !is_open(value) && of(value).is_partial(); }
    const Sharding& of(ValueId value) const; // as it came, or what it was reduced to
    Sharding of_parameter(ValueId value) const;

    // Bytes that a rank sends to have it so.
    double cost(ValueId value, const Sharding& wanted) const;

    void set(ValueId value, const Sharding& state) { there_[index(value)] = {{state}}; }
    void add(ValueId value, const Sharding& state) { there_[index(value)].push_back({state}); }
    // `keep`: what is gathered for it stays for the backward.
    void bring(ValueId value, const Sharding& wanted, bool keep = false);

  private:
    Sharding even_shard(ValueId value) const;

    const Graph& graph_;
    int size_; // of the axis
    const std::vector<bool>& sharded_;
    bool backward_ = false;
    std::vector<std::vector<Representation>> there_; // per value
};

} // namespace tutti::sharding

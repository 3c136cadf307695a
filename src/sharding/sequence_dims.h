// Which dimension of a value is the sequence, followed from the graph's inputs through the loops of nodes.
#pragma once

#include "graph/graph.h"
#include "graph/loops.h"

#include <vector>

namespace tutti::sharding {

class SequenceDims {
  public:
    explicit SequenceDims(const Graph& graph) : graph_(graph), dims_(graph.values().size(), -1) {}

    int of(ValueId value) const { return dims_[index(value)]; } // -1: none
    void set(ValueId value, int dim) { dims_[index(value)] = dim; }
    void follow(const Node& node); // from its inputs to its outputs
    // The loop of the node that goes along the sequence of an input; -1: none.
    int loop(const Node& node, const LoopDims& dims, std::size_t input) const;

  private:
    const Graph& graph_;
    std::vector<int> dims_; // per value
};

} // namespace tutti::sharding

// The cost model: from a step graph, a tensor mesh and a cluster to a Problem, and back from a solution to what it
// means. Redundancy is what a rank has of a tensor beyond its share, |x| (1/f - 1/p) for one that is split into f of
// p parts: of weights, their gradients and optimizer states, and of what is kept for the backward.
//
// A value with one reader is an edge between two operators. One with several is a node of its own: its options are the
// states in which it is handed on, and whether gradients that come back as partial sums are reduced one by one or added
// up first.
#pragma once

#include "plan/plan.h"
#include "planner/strategies/resharding_cost.h"
#include "planner/strategies/structure.h"

namespace tutti::planner::strategies {

struct ModelOptions {
    std::vector<int> axes = {1}; // of the tensor mesh, outermost first
    Precision precision{};
    std::int64_t in_flight = 1;     // micro-batches whose activations are held
    std::int64_t micro_batches = 1; // per step: gradients are summed over ranks once in so many
    double transient_weight = 1;    // of transient bytes, against resident ones
    std::optional<Bytes> memory_cap{};
};

// What a choice holds and takes.
struct Outcome {
    Bytes redundancy{}; // resident, more than its share
    Bytes states{};     // weights, gradients and optimizer states of a rank
    Bytes saved{};      // kept for the backward, of all micro-batches in flight
    Bytes transient{};  // the most transient memory at any time point
    Bytes memory() const { return states + saved + transient; }
    Seconds time{}; // of a micro-batch
    Seconds computing{};
};

class StrategyModel {
  public:
    // `step` and `costs` are kept by reference. Error where no operator can use an axis.
    StrategyModel(const Graph& step, const costs::CostModel& costs, const ModelOptions& options);

    const Problem& problem() const { return problem_; }
    const Structure& structure() const { return structure_; }
    const ModelOptions& options() const { return options_; }
    const Graph& graph() const { return graph_; }
    const std::vector<std::string>& warnings() const { return structure_.warnings; }

    Outcome outcome(const Solution& solution) const;
    sharding::OperatorStrategies operator_strategies(const Solution& solution) const;

    // An option of a node of the problem.
    struct Option {
        MenuItem item;                   // of the operator that chooses
        std::vector<MenuItem> followers; // of the group's further members
        std::vector<bool> held;          // per axis: weights that it does not split are sharded, and gathered for use
        bool keep = false;               // gathered inputs are kept for the backward
        States states;                   // of a value that is handed on: how,
        std::vector<bool> sums_first;    // and per axis: gradients are added up as partial sums, then reduced
        Amount states_bytes = 0, saved_bytes = 0, computing = 0;

        const MenuItem& member(std::size_t m) const { return m == 0 ? item : followers[m - 1]; }
    };
    struct Vertex {
        int group = -1, flow = -1; // one of the two
        std::vector<Option> options;
    };
    const std::vector<Vertex>& vertices() const { return vertices_; }
    // Which vertex hands a flow on: itself, or the group's. And the states on either end.
    struct Arrow {
        int flow = 0, from = 0, to = 0;
        std::size_t use = 0; // of the flow; of the arrow into the flow's own vertex: none
    };
    const std::vector<Arrow>& arrows() const { return arrows_; } // per edge of the problem that is a flow's
    States given(const Arrow& arrow, const Solution& solution) const;
    States taken(const Arrow& arrow, const Solution& solution) const;

  private:
    friend class ModelBuilder;

    const Graph& graph_;
    ModelOptions options_;
    Structure structure_;
    Problem problem_;
    std::vector<Vertex> vertices_;
    std::vector<Arrow> arrows_;
    std::vector<std::vector<Amount>> edge_bytes_; // per edge of the problem and cell: what is kept for it, or held
    std::vector<int> tie_edges_;                  // those that are about a tensor of two operators
};

} // namespace tutti::planner::strategies

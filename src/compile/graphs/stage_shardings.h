// StageShardings: what the stages of a model have to agree on when each is sharded over the tensor axis by itself.
//
//   activations   come as the stage before gives them
//   tied tensors  that several stages use are owned alike by all of them, as the first of these wants it; and their
//                 gradients are partial sums in all of them or in none, since they are added up in one place
#pragma once

#include "compile/graphs/rank_stage.h"
#include "graph/blocks.h"
#include "plan/plan.h"
#include "sharding/shard_axes.h"

#include <span>

namespace tutti::compile {

class StageShardings {
  public:
    // `forward`, `blocks` and `plan` outlive this.
    StageShardings(const Graph& forward, std::span<const Block> blocks, const Plan& plan, int tensor_rank);

    const Ties& ties() const { return ties_; }
    const sharding::OperatorStrategies& strategies() const { return strategies_; }

    // How to shard the forward of a stage, and with `gradients` its whole step.
    sharding::ShardAxesOptions options_of(int stage, bool gradients);

  private:
    Graph graph_of(int stage) const;
    bool begins_tie(int stage) const;
    bool has_same_views_everywhere(const std::string& tied) const;
    void decide_until(int stage);
    void decide_gradients();

    const Graph& forward_;
    std::span<const Block> blocks_;
    const Plan& plan_;
    int tensor_rank_;
    sharding::OperatorStrategies strategies_;
    Graph whole_; // all blocks; where the plan has strategies
    Ties ties_;
    // Per stage that is decided: the states of what the next one takes over, along every axis.
    std::vector<std::map<std::string, std::vector<sharding::Sharding>>> given_;
    std::map<std::string, std::vector<sharding::Sharding>> tied_; // of those whose first stage is decided
    std::map<std::string, std::vector<bool>> reduced_;
    bool gradients_decided_ = false;
};

} // namespace tutti::compile

// The step graphs of a rank's stages, made from the forward graph of a model: cut into stages, sharded over the tensor
// axis, with activation recomputation.
#pragma once

#include "compile/graphs/rank_stage.h"
#include "graph/blocks.h"
#include "graph/graph.h"
#include "plan/plan.h"

#include <vector>

namespace tutti::compile {

struct RankGraphs {
    std::vector<RankStage> stages;
    RankPlace place;
};

// `forward` is for one micro-batch, or for half of one where the plan says sub_pipeline.
RankGraphs training_graphs(const Graph& forward, const Plan& plan, int rank);
// Forward alone.
RankGraphs forward_graphs(const Graph& forward, const Plan& plan, int rank);

} // namespace tutti::compile

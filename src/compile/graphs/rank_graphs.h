// What a rank computes: from the forward graph of a model, the step graphs of the stages that are this rank's, each
// split over the tensor axis, with the blocks it computes again in the backward.
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

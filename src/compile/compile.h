// Graphs + Plan -> Program: cuts the step graphs of a rank's stages into segments, decides where every buffer lies, and
// writes the task order.
#pragma once

#include "compile/graphs/rank_stage.h"
#include "compile/holdings.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "program/program.h"

namespace tutti::compile {

struct Compiled {
    Program program;
    Holdings holdings;
};

// The graphs come from make_training_graph or make_forward_graph. A forward graph gives a program without gradients,
// moments or update, on model data as `holdings` say: those of the training program it looks at. It takes one
// micro-batch through the stages of each copy.
Compiled compile_training(std::span<const RankStage> stages, const Plan& plan, const RankPlace& place);
Program compile_forward(std::span<const RankStage> stages, const Plan& plan, const RankPlace& place,
                        const Holdings& holdings);

// One rank, one stage.
Compiled compile_training(const Graph& graph, const Plan& plan);
Program compile_forward(const Graph& graph, const Plan& plan, const Holdings& holdings);
Holdings hold_all(const Graph& graph, const Plan& plan);

} // namespace tutti::compile

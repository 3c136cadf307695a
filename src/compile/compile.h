// Graph + Plan -> Program: cuts the step graph into segments, decides where every buffer lies, and writes the task
// order.
#pragma once

#include "graph/graph.h"
#include "memory/chunks.h"
#include "plan/plan.h"
#include "program/program.h"

namespace tutti {

struct Compiled {
    Program program;
    ChunkLayout chunks;
};

// The graph comes from make_training_graph or make_forward_graph. A forward graph gives a program without gradients,
// moments or update, whose chunks are laid out as `chunks` says: those of the training program it looks at.
Compiled compile_training(const Graph& graph, const Plan& plan);
Program compile_forward(const Graph& graph, const Plan& plan, const ChunkLayout& chunks);

} // namespace tutti

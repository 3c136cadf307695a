// compile(model, plan, rank): from the forward graph of a model and a complete plan to what a rank does in a step. It
// is a function: nothing else, neither the machine nor the time of day, decides anything.
//
// On the way it cuts the step graphs of the rank's stages (compile/graphs/) into segments, decides where every buffer
// lies, and writes the task order.
#pragma once

#include "compile/graphs/rank_stage.h"
#include "compile/ownership.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "program/program.h"
#include "sharding/slice.h"

#include <optional>

namespace tutti::compile {

// The slice of a micro-batch's logits that a rank has, and the stage and model replica that produce it.
struct RankLogits {
    sharding::TensorSlice slice;
    int stage = 0, replica = 0;
};

struct Compiled {
    Program program;
    Ownership ownership;
    std::optional<RankLogits> logits{};
};

// `forward` is for one micro-batch, or for half of one where the plan says sub_pipeline. Updates are where the plan's
// residency wants them; where that is open, on the device and in their own step.
Compiled compile(const Graph& forward, const Plan& plan, int rank);
// The forward alone, of a graph for one micro-batch, on model data as training owns it.
Program compile_evaluation(const Graph& forward, const Plan& plan, int rank, const Ownership& ownership);

// The second half of compile, from step graphs that were made before by make_training_graph or make_forward_graph. A
// forward graph gives a program without gradients, moments or update, on the model data of the training program
// (`ownership`). It takes one micro-batch through the stages of each model replica.
Compiled compile_training(std::span<const RankStage> stages, const Plan& plan, const RankPlace& place);
Program compile_forward(std::span<const RankStage> stages, const Plan& plan, const RankPlace& place,
                        const Ownership& ownership);

// One rank, one stage.
Compiled compile_training(const Graph& graph, const Plan& plan);
Program compile_forward(const Graph& graph, const Plan& plan, const Ownership& ownership);
Ownership own_all(const Graph& graph, const Plan& plan);

} // namespace tutti::compile

// The Plan of a run: one that it follows, or made of the config.
#pragma once

#include "models/model.h"
#include "plan/plan.h"
#include "resolve/pipeline_plan.h"
#include "run/run_config.h"

#include <optional>
#include <string>

namespace tutti::resolve {

// The workload's numbers that the data determines, with those that the config asks for.
struct DataShape {
    std::int64_t sequence = 0, global_batch = 0;
};

// Made by hand, of what the config asks for. Error where the numbers do not fit together.
// `model` is for one micro-batch: its blocks are what stages are cut from. `memory`: what this rank may use. `offload`:
// what the config asks for, with the speeds that decide where it leaves that open.
Plan make_plan(const run::RunConfig& config, const DataShape& data, const models::Model& model, Bytes memory,
               const OffloadChoice& offload = {});

// Whether one plan is the other, with what the other leaves open decided.
bool completes(Plan complete, const Plan& plan);

// The plan with which the first step is dumped: gradients and logits have to be there then.
Plan for_dump(Plan plan);

Plan read_plan(const std::string& file);
// The plan that a run follows: the one that is given, else that of the file that the config names; none: it makes its
// own.
std::optional<Plan> followed_plan(const run::RunConfig& config, const Plan* given);
// The config with what a plan decides put in its place.
run::RunConfig with_plan(run::RunConfig config, const Plan& plan);

// The model that the config names. Error where the plan of the config's file (null: it names none) was made for
// another.
models::ModelSource open_planned_model(const run::RunConfig& config, const Plan* plan);
// Error where the plan of the config's file does not fit data, model or config.
void check_followed(const Plan& plan, const run::RunConfig& config, const DataShape& data, const models::Model& model);

} // namespace tutti::resolve

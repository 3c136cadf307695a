// The Plan of a run: read from the file that the config names, or made of the config.
#pragma once

#include "models/model.h"
#include "plan/plan.h"
#include "resolve/pipeline_plan.h"
#include "run/run_config.h"

namespace tutti::resolve {

// What the data says of the workload, with what the config asks for.
struct DataShape {
    std::int64_t sequence = 0, global_batch = 0;
};

// Error where the file does not fit the model, or the numbers do not fit together.
// `model` is for one micro-batch: its blocks are what stages are cut from. `memory`: what this rank may use. `offload`:
// what the config asks for, with the speeds that decide where it leaves that open.
Plan make_plan(const run::RunConfig& config, const DataShape& data, const models::Model& model, Bytes memory,
               const OffloadChoice& offload = {});

// The model that the config names. Error where the config names a plan, too, and it was made for another model.
models::ModelSource open_planned_model(const run::RunConfig& config);

Plan read_plan(const std::string& file);
// The config with what a plan decides put in its place.
run::RunConfig with_plan(run::RunConfig config, const Plan& plan);

} // namespace tutti::resolve

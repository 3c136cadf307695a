// The Plan of a run: read from the file that the config names, or made of the config.
#pragma once

#include "models/model.h"
#include "plan/plan.h"
#include "train/batches.h"
#include "train/pipeline_plan.h"
#include "train/run_config.h"

namespace tutti {

// Error where the file does not fit the model, or the numbers do not fit together.
// `model` is for one micro-batch: its blocks are what stages are cut from. `memory`: what this rank may use. `offload`:
// what the config asks for, with the speeds that decide where it leaves that open.
Plan make_plan(const RunConfig& config, const OpenedData& data, const Model& model, Bytes memory,
               const OffloadChoice& offload = {});

// The model that the config names. Error where the config names a plan, too, and it was made for another model.
ModelSource open_planned_model(const RunConfig& config);

Plan read_plan(const std::string& file);
// The config with what a plan decides put in its place.
RunConfig with_plan(RunConfig config, const Plan& plan);

} // namespace tutti

// Resuming: the checkpoint that a run continues from, and what happens to old checkpoints when a run starts anew.
#pragma once

#include "checkpoints/checkpoint.h"
#include "run/listener.h"
#include "run/run_config.h"

namespace tutti::checkpoints {

// The newest checkpoint of the run's folder that is whole, or the one that was asked for. A damaged one is passed over
// with a warning; one that cannot be read is an error, since what is older, or step 0, would lose what it holds. None
// where the run begins anew: Error where an unfinished run would be written over, or where there are checkpoints and
// none is whole, or where the data changed, or where more steps are done than the run is to do. Rank 0, which alone
// needs the `data` files, looks and decides for all ranks.
std::optional<CheckpointInfo> choose_checkpoint(comm::Group& group, const run::RunConfig& config,
                                                std::span<const StoredTensor> stored,
                                                const nlohmann::ordered_json& settings,
                                                const std::vector<data::DataFile>& data, run::TrainListener& listener);

// A run that begins anew does not mix its checkpoints with those of a finished one, or with damaged ones: they are set
// aside, by rank 0.
void set_checkpoints_aside(comm::Group& group, const run::RunConfig& config, run::TrainListener& listener);
// Nor does one that goes on from `step` with those that are newer.
void set_newer_aside(comm::Group& group, const run::RunConfig& config, std::int64_t step, run::TrainListener& listener);

} // namespace tutti::checkpoints

// RunStart: what a run does before its first step, in this order: it takes its folder, tells what it is going to do,
// takes its memory, and loads weights or a checkpoint.
#pragma once

#include "checkpoints/checkpoint.h"
#include "run/listener.h"
#include "run/run_folder.h"
#include "train/session/session.h"

#include <optional>

namespace tutti::train {

class RunStart {
  public:
    // All is kept by reference. All ranks call the same.
    RunStart(const run::RunConfig& config, Session& session, comm::Group& group, run::TrainListener& listener)
        : config_(config), session_(session), group_(group), listener_(listener) {}

    void take_folder(std::optional<run::RunLock>& lock); // rank 0 locks it and clears away what killed runs left
    void announce(std::int64_t first_step);
    // Whether the run goes on to take its memory; a dry run does not. The plan is recorded before. WorldError where
    // there is no room.
    bool goes_on();
    // `checkpoint`: that the run goes on from; none: it begins with weights.
    checkpoints::CheckpointState load(const std::optional<checkpoints::CheckpointInfo>& checkpoint,
                                      offload::ModelData& data);

  private:
    void load_weights(offload::ModelData& data);

    const run::RunConfig& config_;
    Session& session_;
    comm::Group& group_;
    run::TrainListener& listener_;
};

} // namespace tutti::train

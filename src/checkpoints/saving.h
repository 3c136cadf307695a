// Saving: the checkpoints that a run writes on the way and at its end, and the trained model. All ranks save together,
// in the same order. Which state is saved, and which checkpoints stay: checkpoints/old_checkpoints.h.
#pragma once

#include "checkpoints/checkpoint.h"
#include "models/model.h"
#include "run/listener.h"
#include "run/run_config.h"

namespace tutti::checkpoints {

class Saving {
  public:
    // `stored`: the tensors of the whole model. All is kept by reference.
    Saving(comm::Group& group, const run::RunConfig& config, const models::ModelSource& source,
           std::span<const StoredTensor> stored, run::TrainListener& listener)
        : group_(group), config_(config), source_(source), stored_(stored), listener_(listener) {}

    // The run goes on from a checkpoint of this step, which is there already.
    void resumed(std::int64_t step) { saved_step_ = suspected_step_ = step; }
    // After every step: the first finite one after a checkpoint shows that it is good.
    void stepped(bool finite);

    // Nothing where there is one of this step, or no step was done.
    void checkpoint(const CheckpointState& state, const offload::ModelData& data);
    // With it the run can be made longer. Where nobody asked for checkpoints, a disk without room for it is no failure.
    void last_checkpoint(const CheckpointState& state, const offload::ModelData& data);
    // The run ends with an error, in its data say: the steps before it are not lost. Not tried again where that very
    // checkpoint is the error.
    void checkpoint_after_error(const CheckpointState& state, const offload::ModelData& data);
    // The end of an error's sentence: where --resume would go on; empty where nothing is kept.
    std::string outlook() const;
    // What helps after a divergence, as a sentence without its full stop.
    std::string way_around() const;
    // Whether the run went on from a checkpoint, and no step since was finite: a divergence is then that checkpoint's.
    bool is_suspected() const { return suspected_step_ > 0; }
    // Its folder. Where this process trained nothing and the model is there, it stays as it is.
    std::string model(const offload::ModelData& data, bool trained);

  private:
    std::string way_back() const; // to an older checkpoint; empty where there is none

    comm::Group& group_;
    const run::RunConfig& config_;
    const models::ModelSource& source_;
    std::span<const StoredTensor> stored_;
    run::TrainListener& listener_;
    std::int64_t saved_step_ = 0; // 0: nothing is saved
    std::int64_t tried_step_ = 0;
    std::int64_t suspected_step_ = 0; // of the checkpoint that the run went on from, until a step is finite
    bool confirmed_ = false;          // the newest, by a finite step after it
};

} // namespace tutti::checkpoints

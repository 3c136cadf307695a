// RunPosition: how far a run has come, as its checkpoints record it.
#pragma once

#include "checkpoints/checkpoint.h"

namespace tutti::train {

class RunPosition {
  public:
    void begin(checkpoints::CheckpointState state);
    void advance(bool finite, std::int64_t samples); // by a step; one that is not finite has changed nothing

    std::int64_t step() const { return state_.step; } // steps done
    std::int64_t skipped() const { return state_.skipped; }
    // The first sample of this step, the next or a later one.
    std::int64_t first_sample_of(std::int64_t step, std::int64_t global_batch) const {
        return state_.samples + (step - state_.step) * global_batch;
    }

    const checkpoints::CheckpointState& state() const { return state_; }
    // After the last finite step, which is what model data still is: where a run resumes that has diverged.
    checkpoints::CheckpointState good_state() const;

  private:
    struct Counts {
        std::int64_t step = 0, samples = 0, skipped = 0;
    };
    Counts counts() const { return {state_.step, state_.samples, state_.skipped}; }

    checkpoints::CheckpointState state_;
    Counts good_;
};

} // namespace tutti::train

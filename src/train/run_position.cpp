#include "train/run_position.h"

#include <utility>

namespace tutti::train {

void RunPosition::begin(checkpoints::CheckpointState state) {
    state_ = std::move(state);
    good_ = counts();
}

void RunPosition::advance(bool finite, std::int64_t samples) {
    if (!finite) ++state_.skipped;
    ++state_.step;
    state_.samples += samples;
    if (finite) good_ = counts();
}

checkpoints::CheckpointState RunPosition::good_state() const {
    checkpoints::CheckpointState state = state_;
    state.step = good_.step;
    state.samples = good_.samples;
    state.skipped = good_.skipped;
    return state;
}

} // namespace tutti::train

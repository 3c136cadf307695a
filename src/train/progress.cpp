#include "train/progress.h"

#include <utility>

namespace tutti::train {

void Progress::begin(checkpoints::CheckpointState state) {
    state_ = std::move(state);
    good_ = position();
}

void Progress::advance(bool finite, std::int64_t samples) {
    if (!finite) ++state_.skipped;
    ++state_.step;
    state_.samples += samples;
    if (finite) good_ = position();
}

checkpoints::CheckpointState Progress::good_state() const {
    checkpoints::CheckpointState state = state_;
    state.step = good_.step;
    state.samples = good_.samples;
    state.skipped = good_.skipped;
    return state;
}

} // namespace tutti::train

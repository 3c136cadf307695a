#include "train/prediction_check.h"

#include <algorithm>

namespace tutti::train {

bool CheckedPrediction::stepped(Seconds duration) {
    durations_.push_back(duration.count);
    return std::ssize(durations_) == unlike_others + compared_steps;
}

run::PredictionCheck CheckedPrediction::compare(int pipe, Bytes libraries, Bytes memory) const {
    std::vector<double> later(durations_.begin() + unlike_others, durations_.end());
    std::ranges::sort(later);
    return {.steps = std::ssize(later),
            .predicted = prediction_.step,
            .measured = {later[later.size() / 2]},
            .predicted_memory = prediction_.memory[static_cast<std::size_t>(pipe)] + libraries,
            .memory = memory};
}

} // namespace tutti::train

// Compares a planner's prediction of a run with its first steps.
#pragma once

#include "run/listener.h"

namespace tutti::train {

class CheckedPrediction {
  public:
    explicit CheckedPrediction(Prediction prediction) : prediction_(std::move(prediction)) {}

    // True after the step that makes the comparison worth telling.
    bool stepped(Seconds duration);
    bool can_compare() const { return std::ssize(durations_) > unlike_others; }
    // With the median of the steps so far, but for the first ones, in which libraries load and kernels settle. `memory`
    // is all that the process takes, `libraries` what of it is not the arena's: that is the run's own to know, since
    // choosing a plan leaves more behind than a process has that only follows one.
    run::PredictionCheck compare(int pipe, Bytes libraries, Bytes memory) const;

  private:
    static constexpr std::ptrdiff_t unlike_others = 2, compared_steps = 5;

    Prediction prediction_;
    std::vector<double> durations_;
};

} // namespace tutti::train

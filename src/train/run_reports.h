// RunReports: what a run tells of its steps: to its listener, to the metrics, and of the prediction that its plan was
// taken for.
#pragma once

#include "comm/group.h"
#include "train/metrics.h"
#include "train/prediction_check.h"
#include "train/steps_under_way.h"

#include <optional>

namespace tutti::train {

class RunReports {
  public:
    RunReports(const run::RunConfig& config, const Session& session, comm::World& world, run::TrainListener& listener);

    void open_metrics(std::int64_t first_step); // by rank 0
    run::StepReport report_of(const DoneStep& done, std::int64_t step) const;
    void stepped(const run::StepReport& report);
    void evaluated(std::int64_t step, double loss);
    // The prediction beside what was measured, where the run was too short to have told it before.
    void end(std::int64_t step);

  private:
    void compare(std::int64_t step);

    const run::RunConfig& config_;
    const Session& session_;
    comm::World& world_;
    run::TrainListener& listener_;
    std::optional<Metrics> metrics_;
    std::optional<CheckedPrediction> prediction_; // until it was compared
};

} // namespace tutti::train

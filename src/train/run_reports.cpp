#include "train/run_reports.h"

#include "train/run_memory.h"

#include <cmath>

namespace tutti::train {

RunReports::RunReports(const run::RunConfig& config, const Session& session, comm::World& world,
                       run::TrainListener& listener)
    : config_(config), session_(session), world_(world), listener_(listener) {
    if (const auto& predicted = session.plan().predicted) prediction_.emplace(*predicted);
}

void RunReports::open_metrics(std::int64_t first_step) { metrics_.emplace(config_, first_step, listener_); }

run::StepReport RunReports::report_of(const DoneStep& done, std::int64_t step) const {
    auto plain = [](double x) { return std::isnan(x) ? std::fabs(x) : x; }; // no "-nan"
    return {.step = step,
            .loss = plain(done.scalars.loss),
            .gradient_norm = plain(done.scalars.gradient_norm),
            .learning_rate = done.scalars.learning_rate,
            .duration = done.duration,
            .tokens = done.tokens,
            .tokens_per_second = static_cast<double>(done.tokens) / done.duration.count,
            .memory = memory_in_use(session_.device()),
            .skipped = done.scalars.finite == 0};
}

void RunReports::stepped(const run::StepReport& report) {
    if (metrics_) metrics_->step(report);
    listener_.stepped(report);
    if (prediction_ && prediction_->stepped(report.duration)) compare(report.step);
}

void RunReports::evaluated(std::int64_t step, double loss) {
    if (metrics_) metrics_->evaluation(step, loss); // after that step
    listener_.evaluated(step, loss);
}

void RunReports::end(std::int64_t step) {
    if (prediction_ && prediction_->can_compare()) compare(step);
}

void RunReports::compare(std::int64_t step) {
    const Bytes used = memory_in_use(session_.device());
    const bool shared = world_.shares_process() && !session_.device().memory();
    const run::PredictionCheck check = prediction_->compare(session_.place().pipe, session_.memory().libraries,
                                                            {shared ? used.count / world_.size() : used.count});
    if (metrics_) metrics_->comparison(step, check);
    listener_.compared(check);
    prediction_.reset();
}

} // namespace tutti::train

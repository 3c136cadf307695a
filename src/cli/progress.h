// Progress: the output of a training run: the plan and its memory first, then a line that is redrawn on a terminal, or
// a few plain lines without one.
#pragma once

#include "cores/binding.h"
#include "run/listener.h"
#include "terminal/live_line.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace tutti::cli {

using Clock = std::chrono::steady_clock;

std::string describe(const run::RunSummary& summary, const cores::Binding& binding);
std::string describe(const run::RunSummary& summary, const run::OffloadSummary& offload);
nlohmann::ordered_json to_json(const run::RunSummary& summary, const cores::Binding& binding);
std::string memory_table(const run::RunSummary& summary);

// Every how many steps a plain line is printed, so that about 20 are.
std::int64_t line_stride(std::int64_t steps);
// "step 12/200  loss 3.1416  norm 1.25  ...", what matters least left out where it is too wide.
std::string step_line(const run::StepReport& step, std::int64_t steps, Seconds left, std::size_t columns);

class Progress : public run::TrainListener {
  public:
    // Quiet: standard output is kept for JSON.
    explicit Progress(bool quiet) : quiet_(quiet), line_(quiet) {}

    std::function<void(const run::RunSummary&)> on_planned; // before anything is printed about it

    void bound(const cores::Binding& binding) { binding_ = binding; } // before the plan is shown
    nlohmann::ordered_json planned_json(const run::RunSummary& summary) const { return to_json(summary, binding_); }

    void warning(const std::string& sentence) override;
    void waiting(const std::string& what) override;
    void planned(const run::RunSummary& summary) override;
    void chosen(const run::PlanChoice& choice) override;
    void stepped(const run::StepReport& step) override;
    void compared(const run::PredictionCheck& comparison) override;
    void evaluated(std::int64_t step, double loss) override;
    void saved(const std::string& folder) override;
    void finish(); // leaves the last step's line standing

    const std::optional<run::RunSummary>& summary() const { return summary_; }
    double tokens_per_second() const; // over all steps of this process
    Seconds elapsed() const { return {std::chrono::duration<double>(Clock::now() - started_).count()}; }

  private:
    bool quiet_;
    terminal::LiveLine line_;
    cores::Binding binding_;
    std::optional<run::RunSummary> summary_;
    std::optional<run::StepReport> last_; // not shown yet
    std::int64_t stride_ = 1, printed_at_ = -1, tokens_ = 0;
    double recent_ = 0, training_ = 0; // seconds: of a step, lately; of all steps
    Clock::time_point started_ = Clock::now(), drawn_{};
};

} // namespace tutti::cli

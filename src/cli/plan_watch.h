// PlanWatch: the progress of a search, and its early end by Ctrl-C or by a time limit, with the plans found so far.
#pragma once

#include "planner/search.h"
#include "terminal/live_line.h"

#include <chrono>
#include <optional>
#include <string>

namespace tutti::cli {

class PlanWatch {
  public:
    // From here on Ctrl-C is caught. Quiet: standard output is kept for JSON. `limit`: seconds.
    PlanWatch(bool quiet, std::optional<double> limit);

    // For one search. `doing`: what its line begins with.
    planner::ProgressListener listener(const std::string& doing = {});
    void clear() { line_.clear(); }

    bool is_over() const; // searches end now
    // "was stopped", "came to its time limit": how it is over.
    const char* how() const;
    double seconds() const; // since it began

  private:
    using Clock = std::chrono::steady_clock;

    terminal::LiveLine line_;
    std::optional<double> limit_;
    Clock::time_point begun_ = Clock::now();
};

} // namespace tutti::cli

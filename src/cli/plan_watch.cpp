#include "cli/plan_watch.h"

#include "launch/stop_signals.h"
#include "terminal/words.h"

namespace tutti::cli {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begun) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

std::string line_of(const planner::SearchProgress& progress, double seconds) {
    std::string line =
        fmt::format("{} plans in {:.0f} s, best {}", terminal::with_commas(static_cast<std::int64_t>(progress.plans)),
                    seconds, progress.best > 0 ? to_string(Seconds{progress.best}) : "none fits yet");
    if (progress.bound > 0) line += ", bound " + to_string(Seconds{progress.bound});
    return line;
}

} // namespace

PlanWatch::PlanWatch(bool quiet, std::optional<double> limit) : line_(quiet), limit_(limit) {
    launch::catch_stop_signals();
}

planner::ProgressListener PlanWatch::listener(const std::string& doing) {
    line_.draw(doing + "0 plans"); // before there is anything to tell
    return [this, doing, last = Clock::now(), begun = Clock::now()](const planner::SearchProgress& progress) mutable {
        if (Clock::now() - last > std::chrono::milliseconds(200)) {
            last = Clock::now();
            line_.draw(doing + line_of(progress, seconds_since(begun)));
        }
        return !is_over();
    };
}

bool PlanWatch::is_over() const { return launch::stop_requested() || (limit_ && seconds() > *limit_); }

const char* PlanWatch::how() const { return launch::stop_requested() ? "was stopped" : "came to its time limit"; }

double PlanWatch::seconds() const { return seconds_since(begun_); }

} // namespace tutti::cli

// LiveLine: what a program is busy with, while it is. On a terminal a line that is drawn over; without one a plain line
// now and then, of what goes on for long.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace tutti::terminal {

class LiveLine {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds between_plain_lines{10};

    // Quiet: standard output is kept for JSON.
    explicit LiveLine(bool quiet) : quiet_(quiet) {}
    ~LiveLine() { clear(); }
    LiveLine(const LiveLine&) = delete;
    LiveLine& operator=(const LiveLine&) = delete;

    void draw(const std::string& line, Clock::time_point now = Clock::now());
    void say(const std::string& line); // a line that stays
    void clear();                      // what is drawn; also where an error is on its way, so none of its own

  private:
    bool quiet_, drawn_ = false;
    std::optional<Clock::time_point> silent_since_; // without a terminal: since the wait began, or was last told of
};

} // namespace tutti::terminal

// Detects that a rank has ended before all ranks have met; MPI itself would wait for it for ever.
#pragma once

#include <chrono>
#include <optional>

namespace tutti::launch {

// The children of this process's parent, itself among them; nothing where the system does not tell.
std::optional<int> count_siblings();

class StartedTogether {
  public:
    using Clock = std::chrono::steady_clock;
    // `processes` were started on this machine. `by_parent`: each as a child of the same one, so that those which are
    // not seen for long never come.
    StartedTogether(int processes, bool by_parent, Clock::time_point now)
        : processes_(processes), by_parent_(by_parent), begun_(now) {}

    // Since when one of them is lost, as far as is known. To be called with their number now and again.
    std::optional<Clock::time_point> lost_since(int siblings, Clock::time_point now);

  private:
    int processes_;
    bool by_parent_, were_all_seen_ = false;
    Clock::time_point begun_;
    std::optional<Clock::time_point> lost_;
};

} // namespace tutti::launch

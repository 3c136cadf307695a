// Backoff of a polling thread: it polls at once, then yields in between, then sleeps, ever longer. A large message goes
// in pieces that both sides have to ask for, so a long sleep delays it several times. Where ranks share cores it sleeps
// from the start: asking would take time from those that are waited for, and who lets others run on a busy machine
// comes last there.
#pragma once

#include "comm/transport.h"

#include <condition_variable>
#include <mutex>

namespace tutti::comm::mpi {

class Backoff {
  public:
    explicit Backoff(bool shares_cores)
        : eager_time_(shares_cores ? 0 : 20), yielding_time_(shares_cores ? 0 : 200),
          longest_sleep_(shares_cores ? 1000 : 100) {}

    void restart() { waiting_since_.reset(); } // something happened
    // expecting: messages are under way, so that an answer may come soon.
    void wait(Clock::time_point until, bool expecting);
    void wake(); // from any thread

  private:
    std::chrono::microseconds eager_time_, yielding_time_; // since the wait began
    std::chrono::microseconds longest_sleep_;
    std::optional<Clock::time_point> waiting_since_;
    std::chrono::microseconds sleep_{};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_woken_ = false;
};

} // namespace tutti::comm::mpi

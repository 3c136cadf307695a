#include "comm/mpi/backoff.h"

#include <algorithm>
#include <thread>

namespace tutti::comm::mpi {

using std::chrono::microseconds;

constexpr microseconds shortest_sleep{50};
constexpr microseconds idle_sleep{20000}; // nothing is expected but a word from a rank in trouble

void Backoff::wait(Clock::time_point until, bool expecting) {
    const auto now = Clock::now();
    if (!waiting_since_) {
        waiting_since_ = now;
        sleep_ = shortest_sleep;
    }
    if (expecting && now - *waiting_since_ < eager_time_) return;
    if (expecting && now - *waiting_since_ < yielding_time_) return std::this_thread::yield();
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, std::min(until, now + (expecting ? sleep_ : idle_sleep)), [&] { return is_woken_; });
    if (is_woken_) restart();
    is_woken_ = false;
    sleep_ = std::min(2 * sleep_, longest_sleep_);
}

void Backoff::wake() {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
    changed_.notify_all();
}

} // namespace tutti::comm::mpi

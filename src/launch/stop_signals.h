// Signals that ask a run to stop: it finishes the step at hand, saves, and ends with 128 + the signal's number.
#pragma once

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <string_view>

namespace tutti::launch {

constexpr int status_of_signal = 128; // and its number on top

// What people, terminals, schedulers and mpirun send. A hangup that is ignored when the program starts, as by nohup,
// stays ignored.
inline constexpr std::array stop_signals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU};
bool is_ignored(int signal);

// From here on each of them sets stop_requested(). A second SIGINT or SIGTERM ends the program at once; a terminal that
// closes may send several hangups, and SIGXCPU comes every second.
void catch_stop_signals();
// SIGUSR1 alone, with which mpirun passes a request on: it may come before a rank has found the others.
void catch_passed_on_request();
const std::atomic<bool>& stop_requested();
int stop_signal(); // the first that came; 0: none did

bool ends_when_repeated(int signal);

// Tells a second request to stop from the first one that comes twice: whoever starts processes may pass it on to one
// that has it already. For signal handlers, too.
class FirstRequest {
  public:
    bool is_repeated(); // at every request

  private:
    std::atomic<std::int64_t> at_{0}; // nanoseconds of the monotonic clock
};
std::string_view sentence_of_end(int signal); // by a second request

} // namespace tutti::launch

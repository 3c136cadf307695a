// The terminal: whether there is one, how wide it is, what may be shown on it, and the signals that come from it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::cli {

bool output_is_terminal();
std::size_t terminal_columns(); // of standard output; 100 where it is not a terminal

// 256 colours, and nobody who asked for none (NO_COLOR).
bool terminal_has_colours();

// Prints to standard output at once, so that a reader at the other end of a pipe sees it too.
void print(std::string_view text);
// To standard error, at once. Where nobody can hear it, that is no failure of what is said.
void say_on_errors(std::string_view text);
// A line on standard error.
void warn(std::string_view sentence);

// Bytes as they come, made safe to show: what is no UTF-8 becomes U+FFFD, and control characters other than line ends
// and tabs are escaped, as in \x1b. A sequence may be spread over several calls.
class SafeText {
  public:
    std::string add(std::string_view bytes);
    std::string finish(); // what was left unfinished

  private:
    std::string pending_;
};

// Set by SIGINT, SIGTERM and SIGUSR1 once they are caught. A second SIGINT or SIGTERM ends the program at once.
void catch_stop_signals();
const std::atomic<bool>& stop_requested();

// Tells a second request to stop from the first one that comes twice: whoever starts processes may pass it on to one
// that has it already. For signal handlers, too.
class FirstRequest {
  public:
    bool is_repeated(); // at every request

  private:
    std::atomic<std::int64_t> at_{0}; // nanoseconds of the monotonic clock
};
std::string_view sentence_of_end(int signal); // by a second request

} // namespace tutti::cli

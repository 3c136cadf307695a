// The terminal: whether there is one, how wide it is, and what may be shown on it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::terminal {

// In a rank that tutti started: the columns of the terminal that its output goes to, 0 where it goes elsewhere. They
// are told in an environment variable.
constexpr const char* launcher_variable = "TUTTI_LAUNCHER";
std::optional<int> launcher_columns();

bool output_is_terminal();
std::size_t terminal_columns(); // of standard output; 100 where it is not a terminal

// 256 colours, and nobody who asked for none (NO_COLOR).
bool terminal_has_colours();

// Prints to standard output at once, so that a reader at the other end of a pipe sees it too.
void print(std::string_view text);
// From here on a terminal, pipe or disk that takes no more of it is told once, on standard error, and print() goes on
// without it: for what has more to do than to print. A reader that goes away does not end the program.
void let_output_fail();
// To standard error, at once. Where nobody can hear it, that is no failure of what is said.
void say_on_errors(std::string_view text);
// A line on standard error.
void warn(std::string_view sentence);

// Bytes as they come, made safe to show: what is no UTF-8 becomes U+FFFD; control characters other than line ends and
// tabs, and those that turn the direction of text, are escaped, as in \x1b and \u202e. A sequence may be sharded over
// several calls.
class SafeText {
  public:
    std::string add(std::string_view bytes);
    std::string finish(); // what was left unfinished

  private:
    std::string pending_;
};

} // namespace tutti::terminal

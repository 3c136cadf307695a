#include "terminal/live_line.h"

#include "terminal/terminal.h"

#include <cstdio>

namespace tutti::terminal {

void LiveLine::draw(const std::string& line, Clock::time_point now) {
    if (quiet_) return;
    if (output_is_terminal()) {
        print("\r" + line.substr(0, terminal_columns() - 1) + "\x1b[K");
        drawn_ = true;
        return;
    }
    if (!silent_since_) silent_since_ = now;
    if (now - *silent_since_ < between_plain_lines) return;
    print(line + '\n');
    silent_since_ = now;
}

void LiveLine::say(const std::string& line) {
    if (quiet_) return;
    clear();
    print(line + '\n');
}

void LiveLine::clear() {
    silent_since_.reset();
    if (!drawn_) return;
    std::fputs("\r\x1b[K", stdout);
    std::fflush(stdout);
    drawn_ = false;
}

} // namespace tutti::terminal

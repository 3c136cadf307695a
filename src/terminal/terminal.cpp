#include "terminal/terminal.h"

#include "base/system_error.h"
#include "comm/mpi_world.h"
#include "terminal/shown.h"
#include "terminal/words.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tutti::terminal {
namespace {

// Of standard output.
enum class OnFailure { fail, tell_once, be_silent };
std::atomic<OnFailure> on_failure{OnFailure::fail};

// The length of the UTF-8 sequence that a byte begins; 0: none does.
std::size_t sequence_length(unsigned char first) {
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first <= 0xdf) return 2;
    if (first >= 0xe0 && first <= 0xef) return 3;
    if (first >= 0xf0 && first <= 0xf4) return 4;
    return 0;
}

// Whether the next byte may follow those before it: continuation bytes, and none of the overlong forms, surrogates or
// code points beyond U+10FFFF, which the second byte decides.
bool may_follow(std::string_view before, unsigned char next) {
    if (next < 0x80 || next > 0xbf) return false;
    if (before.size() > 1) return true;
    switch (static_cast<unsigned char>(before[0])) {
    case 0xe0: return next >= 0xa0;
    case 0xed: return next <= 0x9f;
    case 0xf0: return next >= 0x90;
    case 0xf4: return next <= 0x8f;
    default: return true;
    }
}

char32_t code_point(std::string_view character) { // of a whole sequence
    const std::size_t length = character.size();
    auto code = static_cast<char32_t>(static_cast<unsigned char>(character[0]) & (length == 1 ? 0x7f : 0xff >> length));
    for (const char next : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3f);
    return code;
}

// What a terminal obeys instead of showing it: control characters, and those that turn the direction of the text that
// follows, so that a name reads as another.
bool is_control(char32_t code) {
    return (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0) ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string escaped(char32_t control) {
    const auto code = static_cast<std::uint32_t>(control);
    return code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

constexpr const char* replacement = "\xef\xbf\xbd";

} // namespace

std::optional<int> launcher_columns() {
    const char* text = std::getenv(launcher_variable);
    const auto columns = text ? parse_integer(text) : std::nullopt;
    if (!columns || *columns < 0 || *columns > 100000) return std::nullopt;
    return static_cast<int>(*columns);
}

bool output_is_terminal() {
    // mpirun has ranks write to a terminal of its own making, wherever that goes; only who started it can know.
    static const bool terminal =
        comm::find_launch() ? launcher_columns().value_or(0) > 0 : ::isatty(STDOUT_FILENO) == 1;
    return terminal;
}

std::size_t terminal_columns() {
    struct winsize size {};
    if (!output_is_terminal()) return 100;
    if (const auto columns = launcher_columns(); columns && comm::find_launch())
        return static_cast<std::size_t>(*columns);
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

bool terminal_has_colours() {
    auto of = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string_view(value ? value : "");
    };
    if (!output_is_terminal() || !of("NO_COLOR").empty()) return false;
    return of("TERM").find("256color") != std::string_view::npos || of("COLORTERM") == "truecolor" ||
           of("COLORTERM") == "24bit";
}

void print(std::string_view text) {
    if (on_failure == OnFailure::be_silent) return;
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
    const int error = errno;
    if (on_failure == OnFailure::fail) fail_system(error, "cannot write to standard output");
    on_failure = OnFailure::be_silent;
    warn(fmt::format("cannot write to standard output: {}; the run goes on without it", std::strerror(error)));
}

void let_output_fail() {
    std::signal(SIGPIPE, SIG_IGN);
    auto failing = OnFailure::fail;
    on_failure.compare_exchange_strong(failing, OnFailure::tell_once);
}

void say_on_errors(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

void warn(std::string_view sentence) { say_on_errors(fmt::format("tutti: warning: {}\n", safe_to_show(sentence))); }

std::string SafeText::add(std::string_view bytes) {
    std::string shown;
    for (char byte : bytes) {
        if (!pending_.empty() && !may_follow(pending_, static_cast<unsigned char>(byte))) {
            shown += replacement;
            pending_.clear();
        }
        pending_ += byte;
        const std::size_t length = sequence_length(static_cast<unsigned char>(pending_[0]));
        if (length == 0) {
            shown += replacement;
            pending_.clear();
        } else if (pending_.size() == length) {
            const char32_t code = code_point(pending_);
            shown += is_control(code) ? escaped(code) : pending_;
            pending_.clear();
        }
    }
    return shown;
}

std::string SafeText::finish() {
    const bool unfinished = !pending_.empty();
    pending_.clear();
    return unfinished ? replacement : "";
}

} // namespace tutti::terminal

// The three classes of failure and their exit statuses. Library code throws them; only launch/ and cli/ catch, print
// and exit.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

constexpr int status_error = 2, status_bug = 70, status_world = 75;

// The sentence of a failure, with the beginning alone of every name that nobody would read to its end.
std::string with_short_names(std::string_view sentence);

// What a user or a file can cause: exit status 2. One sentence that names the file, key or operator, the values, and
// what would be right.
struct Error : std::runtime_error {
    explicit Error(std::string_view sentence) : std::runtime_error(with_short_names(sentence)) {}
};

// What the world did (disk full, lost rank, out of memory): exit status 75. Trying again, or resuming, will work.
struct WorldError : std::runtime_error {
    explicit WorldError(std::string_view sentence) : std::runtime_error(with_short_names(sentence)) {}
};

// What is said where an allocation failed, which is of the world, too.
constexpr const char* out_of_memory = "out of memory; a smaller --micro-batch or --sequence needs less";

// How a sentence about a defect begins.
constexpr const char* defect = "this is a defect in tutti: ";

// What only a defect in this program can cause: exit status 70.
struct Bug : std::logic_error {
    using std::logic_error::logic_error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> sentence, Args&&... args) {
    throw Error(fmt::format(sentence, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_world(fmt::format_string<Args...> sentence, Args&&... args) {
    throw WorldError(fmt::format(sentence, std::forward<Args>(args)...));
}

[[noreturn]] void report_bug(const char* expression, const char* file, int line, const std::string& values);

} // namespace tutti

// TUTTI_CHECK(condition, "format", values...): an invariant of this program.
#define TUTTI_CHECK(condition, ...)                                                                                    \
    do {                                                                                                               \
        if (!(condition)) ::tutti::report_bug(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__));             \
    } while (false)

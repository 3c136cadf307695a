#include "launch/stop_signals.h"

#include "comm/mpi_world.h"

#include <unistd.h>

#include <ctime>
#include <mutex>
#include <span>
#include <thread>

namespace tutti::launch {
namespace {

std::atomic<bool> stop{false};
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "they are set in a signal handler");

// A second request ends the process, whatever it is doing. All of this may be called in a handler.
std::atomic<bool> speaks_at_the_end{true};
FirstRequest first_request;
void take_request(int signal) {
    int none = 0;
    first_signal.compare_exchange_strong(none, signal);
    stop.store(true);
    if (!ends_when_repeated(signal) || !first_request.is_repeated()) return;
    const std::string_view sentence = sentence_of_end(signal);
    if (speaks_at_the_end.load() && ::write(STDERR_FILENO, sentence.data(), sentence.size()) < 0)
        ::_exit(status_of_signal + signal);
    std::signal(signal, SIG_DFL);
    ::raise(signal); // takes effect when the handler returns
}

// Handlers run in a thread of their own, and not in those that compute: memory was found to be corrupted after some had
// run in the midst of oneDNN's products on a CPU without AVX-512.
void keep_from_this_thread(std::span<const int> signals) {
    static std::once_flag begun;
    std::call_once(begun, [] {
        std::thread([] {
            for (;;) ::pause();
        }).detach();
    });
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : signals) ::sigaddset(&set, signal);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr); // and so in all threads that it will start
}

void catch_signals(std::span<const int> signals) {
    struct sigaction action {};
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    action.sa_handler = take_request;
    for (const int signal : signals)
        if (signal != SIGHUP || !is_ignored(signal)) ::sigaction(signal, &action, nullptr);
    keep_from_this_thread(signals);
}

} // namespace

bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool ends_when_repeated(int signal) { return signal == SIGINT || signal == SIGTERM; }

void catch_passed_on_request() { catch_signals(std::array{SIGUSR1}); }

void catch_stop_signals() {
    catch_signals(stop_signals);
    std::signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of the write, not a death
    speaks_at_the_end.store(!comm::find_launch());
}

bool FirstRequest::is_repeated() {
    struct timespec time {};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    const std::int64_t now = time.tv_sec * 1'000'000'000 + time.tv_nsec;
    std::int64_t none = 0;
    return !at_.compare_exchange_strong(none, now) && now - none >= 50'000'000;
}

std::string_view sentence_of_end(int signal) {
    return signal == SIGTERM ? "tutti: ended at once by a second SIGTERM: what was not saved is lost\n"
                             : "tutti: ended at once by a second interrupt: what was not saved is lost\n";
}

const std::atomic<bool>& stop_requested() { return stop; }

int stop_signal() { return first_signal.load(); }

} // namespace tutti::launch

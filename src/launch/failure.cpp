#include "launch/failure.h"

#include "base/error.h"
#include "base/system_error.h"
#include "launch/mpirun.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>
#include <thread>

namespace tutti::launch {
namespace {

// Nothing here takes memory, since there may be none.
[[noreturn]] void end_at_once(int status, const char* sentence, const char* more = "") {
    static std::atomic_flag is_ending;
    while (is_ending.test_and_set()) ::pause(); // another thread tells it
    std::array<char, 1000> line{};
    terminal::say_on_errors(
        {line.data(), fmt::format_to_n(line.data(), line.size(), "tutti: {}{}\n", sentence, more).out});
    report_to_launcher(status);
    std::_Exit(status);
}

[[noreturn]] void end_lost_exception() {
    try {
        if (std::current_exception()) throw;
        end_at_once(status_bug, defect, "it ended without an exception");
    } catch (const std::bad_alloc&) {
        end_at_once(status_world, out_of_memory);
    } catch (const std::exception& error) {
        end_at_once(status_bug, defect, error.what());
    } catch (...) {
        end_at_once(status_bug, defect, "an exception of no class");
    }
}

// Where a large request fails, the run fails in good order. Where there is not even a little, destructors and handlers
// cannot do their work: those of JSON values take memory, and a variant of strings that could not be copied is broken.
void meet_lack_of_memory() {
    constexpr std::size_t little = 1 << 12;
    void* volatile found = std::malloc(little);
    if (!found) end_at_once(status_world, out_of_memory);
    std::free(found);
    throw std::bad_alloc();
}

} // namespace

void always_end_with_a_sentence() {
    std::set_terminate(end_lost_exception);
    std::set_new_handler(meet_lack_of_memory);
}

comm::Failure failure_of(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Error& error) {
        return {error.what(), status_error};
    } catch (const WorldError& error) {
        return {error.what(), status_world};
    } catch (const std::bad_alloc&) {
        return {out_of_memory, status_world};
    } catch (const std::system_error& error) { // of the standard library: threads, its own file names
        return is_of_the_world(error.code().value()) ? comm::Failure{error.what(), status_world}
                                                     : comm::Failure{error.what(), status_error};
    } catch (const std::exception& error) {
        const std::string sentence = error.what(); // another rank may have told of it before
        return {sentence.starts_with(defect) ? sentence : defect + sentence, status_bug};
    }
}

int tell(const comm::Failure& failure) {
    terminal::say_on_errors(fmt::format("tutti: {}\n", terminal::safe_to_show(failure.sentence)));
    report_to_launcher(failure.status);
    return failure.status;
}

int let_others_tell(const comm::Failure& failure) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return failure.status;
}

void end_process(const comm::Failure& failure, bool tells) {
    tells ? tell(failure) : let_others_tell(failure);
    std::fflush(nullptr);
    std::_Exit(failure.status);
}

} // namespace tutti::launch

#include "cli/failure.h"

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/mpirun.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

namespace tutti::cli {

Failure failure_of(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const CLI::ParseError& error) {
        return {sentence_of(error), status_error};
    } catch (const Error& error) {
        return {error.what(), status_error};
    } catch (const WorldError& error) {
        return {error.what(), status_world};
    } catch (const std::bad_alloc&) {
        return {"out of memory; a smaller --micro-batch or --sequence needs less", status_world};
    } catch (const std::exception& error) {
        return {fmt::format("this is a defect in tutti: {}", error.what()), status_bug};
    }
}

int tell(const Failure& failure) {
    fmt::print(stderr, "tutti: {}\n", failure.sentence);
    std::fflush(stderr);
    report_to_launcher(failure.status);
    return failure.status;
}

int let_others_tell(const Failure& failure) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return failure.status;
}

void end_process(const Failure& failure, bool tells) {
    tells ? tell(failure) : let_others_tell(failure);
    std::fflush(nullptr);
    std::_Exit(failure.status);
}

} // namespace tutti::cli

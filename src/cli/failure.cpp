#include "cli/failure.h"

#include "base/error.h"
#include "base/system_error.h"
#include "cli/arguments.h"
#include "cli/mpirun.h"
#include "cli/shown.h"
#include "cli/terminal.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>
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
    } catch (const std::system_error& error) { // of the standard library: threads, its own file names
        return is_of_the_world(error.code().value()) ? Failure{error.what(), status_world}
                                                     : Failure{error.what(), status_error};
    } catch (const std::exception& error) {
        return {fmt::format("this is a defect in tutti: {}", error.what()), status_bug};
    }
}

int tell(const Failure& failure) {
    say_on_errors(fmt::format("tutti: {}\n", safe_to_show(failure.sentence)));
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

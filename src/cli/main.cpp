// The program: picks the subcommand.

#include "base/error.h"
#include "base/nearest.h"
#include "cli/arguments.h"
#include "formats/json.h"
#include "launch/failure.h"
#include "launch/ranks.h"
#include "launch/waiting_threads.h"
#include "terminal/terminal.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace tutti::cli {
namespace {

// A closed standard file would give its number to the next file that is opened, and what is said would go there.
void open_standard_files() {
    for (int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(number, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) std::abort();
}

int run(std::span<const Command> commands, int count, char** words) {
    const std::string first = count > 1 ? words[1] : "--help";
    if (first == "--help" || first == "-h" || first == "help") {
        terminal::print(overview_text(commands));
        return 0;
    }
    if (first == "--version") {
        terminal::print("tutti " TUTTI_VERSION "\n");
        return 0;
    }
    std::vector<std::string> names;
    for (const Command& command : commands) {
        names.push_back(command.name);
        if (command.name != first) continue;
        CLI::App app(command.about, command.name);
        app.allow_extras(); // rejected below, with a suggestion
        app.set_help_flag();
        const std::function<int()> action = command.declare(app);
        const std::string about_help = "this text";
        const CLI::Option* help = app.add_flag("-h,--help", about_help)->group("Options");
        try {
            app.parse(count - 1, words + 1);
        } catch (const CLI::ParseError& error) {
            throw Error(sentence_of(error));
        }
        if (help->count() > 0) {
            terminal::print(help_text(command, app));
            return 0;
        }
        reject_unknown(app, command.answer_to_unknown);
        return action();
    }
    if (first.starts_with('-')) fail("a command comes first, as in tutti train {}; tutti --help lists them", first);
    fail("there is no command {}{}", formats::in_quotes(first), suggestion(first, names));
}

int run(int count, char** words) {
    const std::vector<Command> commands = {train_command(),  inspect_command(),  generate_command(),
                                           plan_command(),   schedule_command(), simulate_command(),
                                           report_command(), profile_command(),  tokenize_command()};
    return run(commands, count, words);
}

// Large buffers go back to the system when they are freed, so that a process takes what it uses.
void return_freed_memory() {
    constexpr int large = 1 << 20;
    ::mallopt(M_MMAP_THRESHOLD, large);
    ::mallopt(M_TRIM_THRESHOLD, large);
}

} // namespace
} // namespace tutti::cli

int main(int count, char** words) {
    tutti::launch::always_end_with_a_sentence();
    tutti::cli::open_standard_files();
    tutti::launch::let_waiting_threads_sleep(words);
    tutti::cli::return_freed_memory();
    return tutti::launch::run_and_report([&] { return tutti::cli::run(count, words); });
}

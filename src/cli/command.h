// A subcommand as main.cpp sees it: a name, what help says, and how it declares its options. One file each.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace tutti::cli {

struct Command {
    std::string name;
    std::string summary;  // one line, for the list of commands
    std::string usage;    // what follows "tutti NAME"
    std::string about;    // a paragraph for the command's own help
    std::string examples; // one per line
    std::string notes;    // more, laid out already: an empty line, a heading, lines

    // A sentence about a flag that other programs have; empty where there is none.
    std::function<std::string(std::string_view flag)> answer_to_unknown{};

    // Adds the options to the app, and returns what to do once they are parsed: its result is the exit status.
    std::function<std::function<int()>(CLI::App&)> declare;
};

Command train_command();
Command inspect_command();
Command generate_command();
Command schedule_command();
Command simulate_command();
Command report_command();
Command plan_command();
Command profile_command();
Command tokenize_command();

} // namespace tutti::cli

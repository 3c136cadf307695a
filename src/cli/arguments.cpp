#include "cli/arguments.h"

#include "base/error.h"
#include "base/nearest.h"
#include "base/system_error.h"
#include "formats/json.h"
#include "models/builtin.h"
#include "terminal/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace tutti::cli {
namespace {

std::size_t help_columns() { return std::clamp<std::size_t>(terminal::terminal_columns(), 60, 100); }

// "--steps N", "--resume, --no-resume", "MODEL"
std::string term_of(const CLI::Option& option) {
    if (option.get_positional()) return option.get_type_name();
    std::string term;
    for (const std::string& name : option.get_lnames()) {
        // How to switch something off is worth a place only where it is on.
        if (!term.empty() && option.get_default_str().empty()) break;
        term += (term.empty() ? "--" : ", --") + name;
    }
    return option.get_items_expected_max() == 0 ? term : term + " " + option.get_type_name();
}

terminal::Definition definition_of(const CLI::Option& option) {
    terminal::Definition definition{term_of(option), terminal::split(option.get_description(), ' ')};
    if (const std::string shown = option.get_default_str(); !shown.empty())
        definition.words.push_back("[" + shown + "]");
    return definition;
}

std::string paragraph(const std::string& text, std::size_t columns) {
    const terminal::Definition whole{"", terminal::split(text, ' ')};
    std::string lines = terminal::define(std::span(&whole, 1), columns + 2, {0, 0, " "});
    std::string result; // without the two columns that set a term off
    for (const std::string& line : terminal::split(lines, '\n'))
        result += (line.size() > 2 ? line.substr(2) : line) + '\n';
    result.pop_back();
    return result;
}

} // namespace

std::string name_of(const CLI::Option& option) {
    return option.get_positional() ? option.get_type_name() : "--" + option.get_lnames().front();
}

CLI::Option* add_value(CLI::App& app, const std::string& name, const std::string& operand, const std::string& help,
                       const std::string& shown_default) {
    CLI::Option* option = app.add_option(name, help);
    option->type_name(operand)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!shown_default.empty()) option->default_str(shown_default);
    return option;
}

CLI::Option* add_flag(CLI::App& app, const std::string& name, const std::string& help) {
    std::string names = name;
    if (name != "--help" && name != "--json") names += ",!--no-" + name.substr(2);
    return app.add_flag(names, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

OptionNames add_names(CLI::App& app, std::span<const std::string> names, const std::string& operand,
                      const std::string& help, const std::string& shown_default) {
    OptionNames options;
    for (const std::string& name : names) {
        CLI::Option* option =
            operand.empty() ? add_flag(app, name, help) : add_value(app, name, operand, help, shown_default);
        if (!options.empty()) option->group(""); // hidden
        options.push_back(option);
    }
    return options;
}

const CLI::Option* given_of(const OptionNames& names) {
    const CLI::Option* given = names.front();
    for (const CLI::Option* option : names) {
        if (option->count() == 0) continue;
        if (given->count() > 0 && text_of(given) != text_of(option))
            fail("{} is {} and {} is {}, and they are two names of one setting: give one", name_of(*given),
                 *text_of(given), name_of(*option), *text_of(option));
        given = option;
    }
    return given;
}

std::optional<std::string> text_of(const CLI::Option* option) {
    if (option->count() == 0) return std::nullopt;
    return option->results().back();
}

bool is_set(const CLI::Option* flag) { return text_of(flag) == "true"; }

void check_writable(const fs::path& path) {
    if (path.empty()) fail("cannot write a file without a name");
    if (is_folder(path)) fail("cannot write {}: it is a folder", path.string());
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (!is_folder(folder)) fail("cannot write {}: there is no folder {}", path.string(), folder.string());
    if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_system(errno, "cannot write {}", path.string());
}

std::optional<std::int64_t> integer_of(const CLI::Option* option, std::int64_t least, std::int64_t most) {
    const auto text = text_of(option);
    if (!text) return std::nullopt;
    const auto number = terminal::parse_integer(*text);
    if (number ? *number > most : terminal::is_integer(*text))
        fail("{} is {}, and should be an integer from {} to {}", name_of(*option), formats::in_quotes(*text), least,
             most);
    if (!number || *number < least)
        fail("{} is {}, and should be an integer from {}", name_of(*option), formats::in_quotes(*text), least);
    return number;
}

std::optional<double> real_of(const CLI::Option* option, double least) {
    const auto text = text_of(option);
    if (!text) return std::nullopt;
    const auto number = terminal::parse_real(*text);
    if (!number || *number < least)
        fail("{} is {}, and should be a number from {}", name_of(*option), formats::in_quotes(*text), least);
    return number;
}

std::string help_text(const Command& command, const CLI::App& app) {
    const std::size_t columns = help_columns();
    std::string text =
        fmt::format("usage: tutti {} {}\n\n{}", command.name, command.usage, paragraph(command.about, columns));
    std::size_t widest = 0;
    for (const CLI::Option* option : app.get_options()) widest = std::max(widest, term_of(*option).size());
    for (const std::string& group : app.get_groups()) {
        if (group.empty()) continue; // hidden
        std::vector<terminal::Definition> definitions;
        for (const CLI::Option* option : app.get_options([&](const CLI::Option* o) { return o->get_group() == group; }))
            definitions.push_back(definition_of(*option));
        if (definitions.empty()) continue;
        // One column for all groups, so that the eye can run down it.
        definitions.front().term.resize(std::max(definitions.front().term.size(), std::min<std::size_t>(widest, 26)),
                                        ' ');
        text += fmt::format("\n{}:\n{}", group, terminal::define(definitions, columns, {2, 26, " "}));
    }
    text += command.notes + "\nExamples:\n";
    for (const std::string& example : terminal::split(command.examples, '\n')) text += "  " + example + '\n';
    return text;
}

std::string note(const std::string& heading, std::span<const terminal::Definition> definitions) {
    return fmt::format("\n{}:\n{}", heading, terminal::define(definitions, help_columns(), {2, 26, " "}));
}

std::string models_note() {
    std::vector<terminal::Definition> models;
    for (const models::BuiltinModel& model : models::builtin_models())
        models.push_back({model.name, terminal::split(model.summary, ' ')});
    return note("Built-in models", models);
}

std::string overview_text(std::span<const Command> commands) {
    const std::size_t columns = help_columns();
    std::string text = "usage: tutti COMMAND [options]\n\n";
    text += paragraph("Tutti trains language models. With nothing more, \"tutti train\" trains a small one on built-in "
                      "text on this machine, in about a minute.",
                      columns);
    std::vector<terminal::Definition> list;
    for (const Command& command : commands) list.push_back({command.name, terminal::split(command.summary, ' ')});
    text += "\nCommands:\n" + terminal::define(list, columns, {2, 20, " "});
    text += "\nOptions:\n" +
            terminal::define(std::vector<terminal::Definition>{{"--help", {"this text; after a command, its options"}},
                                                               {"--version", {"the program's version"}}},
                             columns);
    text += "\nExamples:\n"
            "  tutti train --output run\n"
            "  tutti generate run/model --prompt \"Once upon a time\"\n";
    text +=
        "\nExit status: 0 done; 2 something given is wrong; 75 the machine failed, trying again or resuming works;\n"
        "70 a defect in tutti.\n";
    return text;
}

void reject_unknown(const CLI::App& app, const std::function<std::string(std::string_view flag)>& answer) {
    const std::vector<std::string> unknown = app.remaining();
    if (unknown.empty()) return;
    // A word that is too many may be the value of an unknown flag: tell of the flag.
    const auto flag = std::ranges::find_if(unknown, [](const std::string& word) { return word.starts_with('-'); });
    if (flag == unknown.end())
        fail("{} is one argument too many for tutti {}", formats::in_quotes(unknown.front()), app.get_name());
    const std::string name = flag->substr(0, flag->find('='));
    if (const std::string sentence = answer ? answer(name) : ""; !sentence.empty()) fail("{}", sentence);
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options())
        if (!option->get_group().empty()) // hidden
            for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
    const std::string hint = suggestion(name, known);
    fail("tutti {} has no option {}{}", app.get_name(), formats::in_quotes(name),
         hint.empty() ? fmt::format("; tutti {} --help lists them", app.get_name()) : hint);
}

std::string sentence_of(const CLI::ParseError& error) {
    const std::string message = error.what();
    const std::size_t colon = message.find(':');
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch) && colon != std::string::npos)
        return message.substr(0, colon) + " needs a value after it";
    return message;
}

} // namespace tutti::cli

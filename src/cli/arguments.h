// Command-line parsing on top of CLI11: readable help, and one clear sentence per error.
#pragma once

#include "base/file.h"
#include "cli/command.h"
#include "terminal/words.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cli {

// Adds an option whose last text is kept; a value has an operand, a flag has none. `--name` without dashes before it is
// a positional. Flags can be negated: --no-name.
CLI::Option* add_value(CLI::App& app, const std::string& name, const std::string& operand, const std::string& help,
                       const std::string& shown_default = {});
CLI::Option* add_flag(CLI::App& app, const std::string& name, const std::string& help);

// The same under its name of today, which help shows, and under those that it had before. No operand: a flag.
using OptionNames = std::vector<CLI::Option*>;
OptionNames add_names(CLI::App& app, std::span<const std::string> names, const std::string& operand,
                      const std::string& help, const std::string& shown_default = {});
// As sentences call an option: --copies, MODEL. CLI11 has none for names that are hidden.
std::string name_of(const CLI::Option& option);
// Of these the one that was given. Error where two were, with different texts.
const CLI::Option* given_of(const OptionNames& names);

// The last text that was given.
std::optional<std::string> text_of(const CLI::Option* option);
bool is_set(const CLI::Option* flag);
// The same as numbers, at least `least`; Error naming the option where it is none.
std::optional<std::int64_t> integer_of(const CLI::Option* option, std::int64_t least,
                                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
std::optional<double> real_of(const CLI::Option* option, double least);

// Error where a file of this name could not be written; so that long work is not begun for nothing.
void check_writable(const fs::path& path);

std::string help_text(const Command& command, const CLI::App& app);
// For a command's notes: a heading with what stands below it; the built-in models.
std::string note(const std::string& heading, std::span<const terminal::Definition> definitions);
std::string models_note();
std::string overview_text(std::span<const Command> commands);

// Error for the first argument that was not understood: `answer`, where it has one for the flag, else with the nearest
// option.
void reject_unknown(const CLI::App& app, const std::function<std::string(std::string_view flag)>& answer = {});
// The sentence for what CLI11 complains of.
std::string sentence_of(const CLI::ParseError& error);

} // namespace tutti::cli

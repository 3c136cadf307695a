#include "run/flags_page.h"

#include "run/run_options.h"

#include <fmt/format.h>

namespace tutti::run {
namespace {

constexpr std::string_view introduction =
    "# Options of tutti train\n"
    "\n"
    "Made from the table of options in `src/run/run_option_table.cpp` by `tutti train --help-markdown > "
    "docs/flags.md`;\n"
    "a test fails where the two differ.\n"
    "\n"
    "Each option is also a key of the TOML file that `--config FILE` names, with underscores: `--global-batch 8` is\n"
    "`global_batch = 8`. Flags win over the file. A switch without an operand is turned off by `--no-NAME`, or by\n"
    "`NAME = false`. `--json` prints the summary and the result as JSON, one object per line.\n";

// Text in a cell of a table.
std::string cell(std::string text) {
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
    return text;
}

std::string in_code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

std::string name_of(const RunOption& option) {
    if (option.positional()) return in_code(option.operand);
    return in_code(cell(option.yes_or_no() ? option.flag() : option.flag() + " " + option.operand));
}

std::string default_of(const RunOption& option) {
    const SettingValue value = option.get(RunConfig{});
    if (const bool* flag = std::get_if<bool>(&value)) return in_code(*flag ? "on" : "off");
    return in_code(to_plain(value));
}

std::string meaning_of(const RunOption& option) {
    std::string text = cell(option.help);
    for (const std::string& key : option.older) text += fmt::format(" (formerly {})", in_code(flag_of(key)));
    return text;
}

} // namespace

std::string flags_page() {
    std::string page(introduction), group;
    for (const RunOption& option : run_options()) {
        if (option.group != group)
            page += fmt::format("\n## {}\n\n| option | type | default | meaning |\n|---|---|---|---|\n",
                                group = option.group);
        page +=
            fmt::format("| {} | {} | {} | {} |\n", name_of(option),
                        option.yes_or_no() ? "switch" : cell(option.expected), default_of(option), meaning_of(option));
    }
    return page;
}

} // namespace tutti::run

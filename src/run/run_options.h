// The options of a training run: one table from which flags, TOML keys, the printed and the saved config all follow.
#pragma once

#include "base/file.h"
#include "plan/setting.h"
#include "run/run_config.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::run {

struct RunOption : Setting<RunConfig> {
    std::string key;                  // as in TOML: global_batch
    std::string group;                // a heading in help and in the file
    std::string operand;              // N, X, FILE in help; empty for yes or no
    std::string help;                 // may span lines
    std::vector<std::string> older{}; // keys that it had before, which flags and TOML still take

    bool positional() const { return key == "model"; }
    bool yes_or_no() const { return operand.empty(); }
    std::string flag() const; // --global-batch
};

std::string flag_of(std::string_view key); // --global-batch

std::span<const RunOption> run_options();
const RunOption* find_run_option(std::string_view key); // by its key, or an older one

// A flag's text. Error naming the flag where it does not fit, as it was typed: `name`, or its name of today.
void set_from_text(RunConfig& config, const RunOption& option, const std::string& text, const std::string& name = {});
// The keys of a TOML file; others are left as they are. Returns those it has. Error naming file, line and key.
std::vector<std::string> read_run_config(RunConfig& config, const fs::path& path);
std::vector<std::string> parse_run_config(RunConfig& config, std::string_view text, const std::string& where);

std::string to_toml(const RunConfig& config);
// The options that `is_kept` says yes to.
std::string to_toml(const RunConfig& config, const std::function<bool(const RunOption&)>& is_kept);
// Group by group, within so many columns; what is empty is left out.
std::string to_lines(const RunConfig& config, std::size_t columns);
std::string to_toml(const SettingValue& value);

} // namespace tutti::run

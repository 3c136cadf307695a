// Texts of unknown origin as they are shown. Every sentence and table with something in it that comes from a file, a
// folder's name or the command line passes through here: a terminal would take some characters for commands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti::terminal {

// As SafeText (terminal/terminal.h) makes it.
std::string safe_to_show(std::string_view text);
// A name, which stays on its line: line ends and tabs are escaped, too.
std::string name_to_show(std::string_view name);
// One JSON text and a line end, in ASCII: JSON lets through the control characters beyond those of ASCII, and 0x7f.
std::string json_to_show(const nlohmann::ordered_json& json, int indent = -1);

} // namespace tutti::terminal

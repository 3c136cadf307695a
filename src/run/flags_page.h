// docs/flags.md: every option of a training run, from their table.
#pragma once

#include <string>

namespace tutti::run {

// In Markdown: a table for each group, a line for each option.
std::string flags_page();

} // namespace tutti::run

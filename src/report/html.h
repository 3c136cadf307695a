// Timelines as one self-contained page: zoom, tooltips, and the memory of each rank under its row.
#pragma once

#include "report/timeline.h"

#include <span>
#include <string>
#include <string_view>

namespace tutti::report {

// All on one time axis.
std::string html_page(std::span<const Timeline> timelines);

extern const std::string_view page_template; // page.html
extern const std::string_view plan_template; // plan.html: what plans show besides

} // namespace tutti::report

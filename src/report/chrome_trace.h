// Timelines in Chrome's trace format, which Perfetto (ui.perfetto.dev) opens: a process per rank, and counters.
#pragma once

#include "report/timeline.h"

#include <span>
#include <string>

namespace tutti::report {

// The format counts microseconds: a unit of the costs is shown as a millisecond.
std::string chrome_trace(std::span<const Timeline> timelines);

} // namespace tutti::report

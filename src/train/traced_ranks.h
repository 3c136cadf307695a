// What ranks know of traced steps, in the form that the trace of a run has, and the way to rank 0.
#pragma once

#include "report/run_trace.h"
#include "runtime/trace.h"
#include "simulate/walk.h"

#include <span>

namespace tutti {

// The steps of one rank, its clock set right by `offset`.
std::vector<TracedStep> steps_of_rank(const Program& program, std::span<const RecordedStep> steps, Seconds offset);
// Joined rank by rank; the first begins at 0.
std::vector<TracedStep> joined_steps(std::span<const std::vector<TracedStep>> ranks);
// A walked rank, with the names of `tasks`, which are its own.
RankTrace simulated_rank(const Outline& outline, const WalkedRank& walked, std::span<const TracedTask> tasks);

std::string to_text(std::span<const TracedStep> steps);     // of one rank
std::vector<TracedStep> parse_steps(std::string_view text); // of this program's own making

} // namespace tutti

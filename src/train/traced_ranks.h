// Converts the traced steps of ranks to the trace of a run, and gathers them on rank 0.
#pragma once

#include "report/run_trace.h"
#include "runtime/trace.h"
#include "simulate/rank_simulation.h"

#include <span>

namespace tutti::train {

// The steps of one rank, its clock set right by `offset`.
std::vector<report::TracedStep> steps_of_rank(const Program& program, std::span<const runtime::RecordedStep> steps,
                                              Seconds offset);
// Joined rank by rank; the first begins at 0.
std::vector<report::TracedStep> joined_steps(std::span<const std::vector<report::TracedStep>> ranks);
// A simulated rank, with the names of `tasks`, which are its own.
report::RankTrace simulated_rank(const simulate::Outline& outline, const simulate::SimulatedRank& simulated,
                                 std::span<const report::TracedTask> tasks);

std::string to_text(std::span<const report::TracedStep> steps);     // of one rank
std::vector<report::TracedStep> parse_steps(std::string_view text); // of this program's own making

} // namespace tutti::train

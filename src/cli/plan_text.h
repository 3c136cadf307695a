// What a plan decides, in words: for inspection of its file and for the summary of a run.
#pragma once

#include "plan/plan.h"

#include <string>

namespace tutti::cli {

// "zb-v, 2 ranks, 8 micro-batches, 2 stages each"
std::string schedule_text(const schedule::ScheduleParameters& parameters);
// "3: blocks 0 to 4 | 5 to 9 | from 10"
std::string stages_text(const Plan& plan);
// "6 of 12 blocks: 2 of 4 in every stage": what a share, or what memory asks for, came to. `blocks`: of the model.
std::string recomputed_text(const Plan& plan, int blocks);

} // namespace tutti::cli

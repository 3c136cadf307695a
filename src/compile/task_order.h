// The task order of a rank's step: the schedule's tasks and those that compiled stages add, bound to segments and
// slots.
#pragma once

#include "compile/stage_code.h"
#include "program/program.h"
#include "schedule/schedule.h"

#include <span>
#include <vector>

namespace tutti::compile {

// Appends segments and tasks of the pipeline to a program. `stages` are in the order of program.stages, which `code`
// follows; `pipe` is the group that messages go through.
void write_pipeline(Program& program, std::span<const StageCode> code, const Program& skeleton, int pipe);

} // namespace tutti::compile

// Which checkpoints of a run are kept, and which are removed.
//
// A step that is not finite changes nothing, so what a run saves is the state after its last finite step, whatever came
// after that. A checkpoint is known to be good when a finite step ran from it: so is every one that a newer one of more
// finite steps follows, and the newest as soon as the next step is finite. Where a run diverges, its newest checkpoint
// is only suspected: the weights may have gone wrong in the very step before it.
//
//   - Old ones go, but for the newest --keep of different finite steps.
//   - The newest that is known to be good stays whatever --keep says: --resume-from goes back to it.
//   - Those newer than the one that a run goes on from belong to another line of progress, or are damaged: they are set
//     aside, so that none of them is lost and none is resumed from by mistake.
//
// One that goes is renamed before it is removed, to a name that nothing takes for a checkpoint.
#pragma once

#include "checkpoints/checkpoint.h"

namespace tutti::checkpoints {

// Does what it can: what stays harms nobody. `confirmed`: a finite step has followed the newest.
void remove_old_checkpoints(const fs::path& run, std::int64_t keep, bool confirmed);

// The step of the newest that a newer one of more finite steps follows.
std::optional<std::int64_t> confirmed_step(const fs::path& run);

// What a killed run was writing or removing. Does what it can.
void remove_leftovers(const fs::path& run);

// Moves the checkpoints of steps after this one to a folder of their own beside checkpoints/, and returns it; empty
// where there are none.
fs::path set_newer_aside(const fs::path& run, std::int64_t step);

} // namespace tutti::checkpoints

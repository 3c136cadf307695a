// Whether a run fits the device's memory, and what would where it does not.
#pragma once

#include "train/session.h"

namespace tutti {

// Where the device's memory is known and too small, or the host's for what has its home there: a sentence, before
// anything is taken, with what would fit. Empty: there is room.
std::string lack_of_room(const Session& session);

// WorldError where the ranks on this machine need more of its memory than it has at all. All ranks call it.
void check_machine(Group& group, const Session& session);

} // namespace tutti

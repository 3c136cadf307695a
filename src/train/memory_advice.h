// Advice about memory: whether a run fits the device, and which options would make it fit.
#pragma once

#include "train/session/session.h"

namespace tutti::train {

// Where the device's memory is known and too small, or what is free on the machine for all ranks on it: a sentence,
// before anything is taken, with what would fit. Empty: there is room on this rank's machine. All ranks call it.
std::string lack_of_room(comm::Group& group, const Session& session);

// Whether every rank's device has room, or, where ranks compute in the host's memory, every machine. All ranks call it.
bool has_room(comm::Group& group, const Session& session);

} // namespace tutti::train

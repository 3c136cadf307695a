// Which options to change in a run that is too large for its device.
#pragma once

#include "train/session/session.h"

#include <string>

namespace tutti::train {

// Flags with which this rank would take no more than `room` beside libraries: each was compiled. Where none was found,
// what is too large, and what holds more: other memory, or more ranks.
std::string what_would_fit(const Session& session, Bytes room);

} // namespace tutti::train

// Whether a run fits the device's memory, and what would where it does not.
#pragma once

#include "train/session.h"

namespace tutti {

// WorldError where the device's memory is known and too small: told before anything is taken, with what would fit.
void check_room(const Session& session);

} // namespace tutti

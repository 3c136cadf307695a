// The clock by which things are timed: it never goes back, and starts anywhere.
#pragma once

#include "base/units.h"

namespace tutti {

Seconds steady_now();

} // namespace tutti

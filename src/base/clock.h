// The clock for timing: it never goes back, and its zero is arbitrary.
#pragma once

#include "base/units.h"

namespace tutti {

Seconds steady_now();

} // namespace tutti

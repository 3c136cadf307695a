// What the operating system says about this process.
#pragma once

#include "base/units.h"

namespace tutti {

Bytes resident_memory();      // now
Bytes peak_resident_memory(); // since it started
void forget_peak_memory();    // it counts from now on, where the system lets us
Bytes machine_memory();       // of the whole machine
Bytes free_memory();          // that processes could still take without anything being swapped out or killed

} // namespace tutti

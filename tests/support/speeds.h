// A machine that every test has: what `auto` decides then follows from this table, on any machine and beside any load.
#pragma once

#include "profiling/offload_timing.h"

namespace tutti::test {

inline constexpr offload::SpeedTable usual_speeds{.kernels = {.flops = 5e10, .bytes = 1e10, .launch = 1e-6},
                                                  .host = {.latency = 1e-5, .in = 8e9, .out = 8e9, .together = 1.5},
                                                  .disk = {.latency = 1e-4, .in = 1e9, .out = 1e9, .together = 1},
                                                  .updates = 5e9};

} // namespace tutti::test

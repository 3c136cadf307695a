// Pauses: steps after which something is done that needs the device to stand still. Until the next one, steps may be
// begun before those in front of them have ended.
#pragma once

#include "run/run_config.h"

#include <cstdint>
#include <optional>

namespace tutti::train {

// The next one after `step` steps, by a process that began after `first`: evaluation, checkpoint, the end. `traced`:
// the steps after which a trace can be written, where there is to be one.
std::int64_t next_pause(const run::RunConfig& config, std::int64_t step, std::int64_t first,
                        std::optional<std::int64_t> traced);

// Whether there is an evaluation or a checkpoint after so many steps.
bool evaluates_after(const run::RunConfig& config, std::int64_t step);
bool saves_after(const run::RunConfig& config, std::int64_t step);

} // namespace tutti::train

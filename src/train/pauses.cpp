#include "train/pauses.h"

#include <algorithm>

namespace tutti::train {

std::int64_t next_pause(const run::RunConfig& config, std::int64_t step, std::int64_t first,
                        std::optional<std::int64_t> traced) {
    std::int64_t pause = config.steps;
    auto every = [&](std::int64_t period) {
        if (period > 0) pause = std::min(pause, (step / period + 1) * period);
    };
    auto once = [&](std::int64_t at) {
        if (at > step) pause = std::min(pause, at);
    };
    every(config.eval_every);
    every(config.save_every);
    if (traced) once(*traced);
    if (config.stop_after > 0) once(first + config.stop_after);
    return pause;
}

bool evaluates_after(const run::RunConfig& config, std::int64_t step) {
    return config.eval_every > 0 && (step % config.eval_every == 0 || step == config.steps);
}

bool saves_after(const run::RunConfig& config, std::int64_t step) {
    return config.save_every > 0 && step % config.save_every == 0;
}

} // namespace tutti::train

// The training loop: from a RunConfig to a trained model folder. It prints nothing; a listener is told what happens.
#pragma once

#include "comm/group.h"
#include "run/listener.h"
#include "run/run_config.h"

#include <atomic>
#include <functional>
#include <optional>

namespace tutti::offload {
struct SpeedTable; // offload_speed.h
}

namespace tutti::train {

struct TrainPlan {
    const Plan* given = nullptr; // null: as the config says
    const Plan* before =
        nullptr; // of the run that goes on: followed where it completes the one that the config asks for
    const offload::SpeedTable* speeds = nullptr; // what plans of model data weigh; null: as timed on this machine
    // Asked for another plan where that one needs more memory than there is; empty: then it is an error.
    std::function<Plan()> fit{};
};

// Runs to the last step, or until `stop` is set: then the step at hand is finished and a checkpoint written. All ranks
// of the world call it with the same config, whose mesh is the world's; a listener is told what happens on its rank.
run::TrainResult train(const run::RunConfig& config, run::TrainListener& listener, const std::atomic<bool>& stop,
                       comm::World& world, const TrainPlan& plan = {});
// The same on one rank.
run::TrainResult train(const run::RunConfig& config, run::TrainListener& listener, const std::atomic<bool>& stop);

} // namespace tutti::train

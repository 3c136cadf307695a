// Training on ranks that are threads, and what came of it.
#pragma once

#include "comm/threads/thread_world.h"
#include "formats/safetensors.h"
#include "support/recorder.h"
#include "support/speeds.h"
#include "support/temporary_folder.h"
#include "train/trainer.h"

#include <functional>
#include <string>
#include <vector>

namespace tutti::test {

struct RanksResult {
    std::vector<Recorder> listeners; // per rank
    std::vector<run::TrainResult> results;
};

// All ranks of the config's mesh. What the first to fail threw is thrown again. `own`: what differs from rank to rank.
RanksResult train_on_ranks(const run::RunConfig& config, const offload::SpeedTable& speeds = usual_speeds,
                           const std::function<void(run::RunConfig&, std::size_t rank)>& own = {});

// A reference model on text, a few steps.
run::RunConfig small_run(const std::string& reference);

// The model with dropout wherever its family knows it; weights as they were.
fs::path with_dropout(const std::string& reference, const TemporaryFolder& folder);

// Losses within 3e-6, norms within 2e-5, and every gradient of step 0 within 1e-5 of its norm and 1e-8 of all.
void expect_same_training(const Recorder& expected, const Recorder& found);
// `only`: of the entries whose names begin so.
void expect_same_gradients(const fs::path& expected, const fs::path& found, std::string_view only = "");

} // namespace tutti::test

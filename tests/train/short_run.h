// A short run of a small model, and its losses.
#pragma once

#include "support/recorder.h"
#include "support/test_device.h"
#include "train/trainer.h"

#include <atomic>
#include <vector>

namespace tutti::test {

inline run::RunConfig short_run() {
    run::RunConfig config;
    config.model = "gpt2-tiny";
    config.steps = 6;
    config.workload.sequence = 16;
    config.workload.global_batch = 4;
    config.workload.micro_batch = 2;
    config.threads = 2;
    config.device = device_to_test();
    return config;
}

inline run::TrainResult trained(const run::RunConfig& config, Recorder& recorder) {
    const std::atomic<bool> stop = false;
    return train::train(config, recorder, stop);
}

inline std::vector<double> losses(const run::RunConfig& config) {
    Recorder recorder;
    trained(config, recorder);
    std::vector<double> all;
    for (const run::StepReport& step : recorder.steps) all.push_back(step.loss);
    return all;
}

} // namespace tutti::test

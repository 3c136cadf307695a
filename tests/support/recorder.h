// A listener that keeps what it is told.
#pragma once

#include "run/listener.h"

#include <string>
#include <vector>

namespace tutti::test {

struct Recorder : run::TrainListener {
    std::vector<run::StepReport> steps;
    std::vector<double> evaluations;
    std::vector<std::string> warnings, waits, saves;
    std::vector<run::PredictionCheck> comparisons;
    run::RunSummary summary;

    void warning(const std::string& text) override { warnings.push_back(text); }
    void waiting(const std::string& text) override { waits.push_back(text); }
    void planned(const run::RunSummary& planned) override { summary = planned; }
    void stepped(const run::StepReport& report) override { steps.push_back(report); }
    void compared(const run::PredictionCheck& comparison) override { comparisons.push_back(comparison); }
    void evaluated(std::int64_t, double loss) override { evaluations.push_back(loss); }
    void saved(const std::string& folder) override { saves.push_back(folder); }
};

} // namespace tutti::test

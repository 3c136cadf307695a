// Records of a run: one JSON object per step, and TensorBoard event files. Where one cannot be written any more, that
// is said once and the run goes on without it: a full disk must not take the training with it.
#pragma once

#include "base/file.h"
#include "formats/tensorboard.h"
#include "run/listener.h"
#include "run/run_config.h"

#include <cstdio>
#include <memory>
#include <optional>

namespace tutti::train {

class Metrics {
  public:
    // A run that resumes at `first_step` keeps the lines of the steps before it and writes the others anew. Error or
    // WorldError where a record cannot even be begun.
    Metrics(const run::RunConfig& config, std::int64_t first_step, run::TrainListener& listener);

    void step(const run::StepReport& report);
    void evaluation(std::int64_t step, double loss);
    void comparison(std::int64_t step, const run::PredictionCheck& comparison);

  private:
    void line(const std::string& text);
    void flush_tensorboard();

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    run::TrainListener& listener_;
    fs::path path_;
    std::unique_ptr<std::FILE, Close> file_;
    std::optional<formats::TensorBoardWriter> tensorboard_;
};

} // namespace tutti::train

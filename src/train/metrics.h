// Records of a run: one JSON object per step, and TensorBoard event files. Where one cannot be written any more, that
// is said once and the run goes on without it: a full disk must not take the training with it.
#pragma once

#include "base/file.h"
#include "formats/tensorboard.h"
#include "train/listener.h"
#include "train/run_config.h"

#include <cstdio>
#include <memory>
#include <optional>

namespace tutti {

class Metrics {
  public:
    // A run that resumes at `first_step` keeps the lines of the steps before it and writes the others anew. Error or
    // WorldError where a record cannot even be begun.
    Metrics(const RunConfig& config, std::int64_t first_step, TrainListener& listener);

    void step(const StepReport& report);
    void evaluation(std::int64_t step, double loss);
    void comparison(std::int64_t step, const PredictionCheck& comparison);

  private:
    void line(const std::string& text);
    void flush_tensorboard();

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    TrainListener& listener_;
    fs::path path_;
    std::unique_ptr<std::FILE, Close> file_;
    std::optional<TensorBoardWriter> tensorboard_;
};

} // namespace tutti

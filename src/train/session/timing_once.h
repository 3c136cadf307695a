// TimingOnce: the speeds of this machine that residency plans depend on. They are timed when they are first needed, by
// all ranks at once, and kept.
#pragma once

#include "profiling/offload_timing.h"
#include "run/listener.h"
#include "train/session/opened_run.h"

#include <optional>

namespace tutti::train {

class TimingOnce {
  public:
    // `speeds`: what is told in place of timing; null: this machine is timed.
    TimingOnce(const OpenedRun& opened, run::TrainListener& listener, const offload::SpeedTable* speeds)
        : opened_(opened), listener_(listener), speeds_(speeds) {}

    // `room`: about the most memory that timing may take.
    profiling::OffloadTiming& operator()(DType compute, Bytes room);

  private:
    const OpenedRun& opened_;
    run::TrainListener& listener_;
    const offload::SpeedTable* speeds_;
    std::optional<profiling::OffloadTiming> timing_{};
};

} // namespace tutti::train

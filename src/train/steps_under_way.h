// StepsUnderWay: the steps that a run has begun and not finished. It reads their batches beforehand, makes their
// scalars, and gives them to the executor.
#pragma once

#include "train/device_work.h"
#include "train/rank_failure.h"
#include "train/run_position.h"
#include "train/session/batches.h"
#include "train/session/session.h"

#include <deque>

namespace tutti::train {

struct DoneStep {
    StepScalars scalars; // with the results
    std::int64_t tokens = 0;
    Seconds duration; // from its beginning, or the end of the step before
};

class StepsUnderWay {
  public:
    StepsUnderWay(const run::RunConfig& config, Session& session, const RunPosition& position, RankFailure& failure,
                  DeviceWork& work);

    // Reads the batches of the steps that are begun first. `end`: the last step of this process.
    void read_first(std::int64_t end);
    std::int64_t most() const { return batches_.ahead(); }
    std::int64_t count() const { return static_cast<std::int64_t>(given_.size()); }
    std::int64_t next() const { return position_.step() + count(); } // the step that is begun next

    // A request to stop travels with the step. `recorder`: null where it is not traced.
    void begin(bool stop, runtime::TraceRecorder* recorder);
    DoneStep finish(); // the oldest
    // Begins and finishes a step that somebody looks on.
    DoneStep run(bool stop, const runtime::Executor::Observer& observer);

    // A step again, to find what was wrong with it.
    StepScalars read_again(std::int64_t step);
    runtime::Executor::Load loader(std::int64_t step) const;

  private:
    struct Given {
        StepScalars scalars;
        std::int64_t tokens = 0;
        Seconds start;
    };
    void read(std::int64_t step);
    StepScalars scalars_of(std::int64_t step) const;
    Given prepare(bool stop);
    DoneStep done(const Given& given, const StepScalars& results);

    const run::RunConfig& config_;
    Session& session_;
    const RunPosition& position_;
    RankFailure& failure_; // of reading
    DeviceWork& work_;
    BatchesAhead batches_;
    std::int64_t end_ = 0;
    std::deque<Given> given_;
    Seconds last_done_; // by steady_now
};

} // namespace tutti::train

// StepTimer: times a step for a TraceRecorder: task by task and wait by wait, each done on the device before the next
// begins. Without a recorder it only does what it is asked to time.
#pragma once

#include "base/clock.h"
#include "runtime/communication.h"
#include "runtime/device_waits.h"
#include "runtime/trace.h"

namespace tutti::runtime {

inline std::int32_t index_in_step(const Program& program, const Task& task) {
    return static_cast<std::int32_t>(&task - program.step.data());
}

class StepTimer {
  public:
    StepTimer(const Program& program, DeviceWaits& waits) : program_(program), waits_(waits) {}

    // From here to `end` the step is timed; null: it is not.
    void begin(TraceRecorder* recorder, std::int64_t step);
    void end();

    // A task: `await` waits for what it needs from other ranks, `work` runs it.
    template <class Await, class Work>
    void run(const Task& task, const Await& await, const Work& work) {
        if (recorder_ == nullptr) return work();
        const std::int32_t number = index_in_step(program_, task);
        recorder_->turn_to(number);
        await();
        waits_.drain();
        run_on_host(task, [&] {
            work();
            waits_.drain();
        });
    }
    // A task of the host alone.
    template <class Work>
    void run_on_host(const Task& task, const Work& work) {
        if (recorder_ == nullptr) return work();
        const Seconds begin = steady_now();
        work();
        recorder_->ran(index_in_step(program_, task), begin, steady_now());
    }
    // What is waited for from now on is for no task, but for the end of the step.
    void turn_to_end();
    void finish(Communication& communication);

  private:
    const Program& program_;
    DeviceWaits& waits_;
    TraceRecorder* recorder_ = nullptr;
};

} // namespace tutti::runtime

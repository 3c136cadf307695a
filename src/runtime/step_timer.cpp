#include "runtime/step_timer.h"

namespace tutti::runtime {

void StepTimer::begin(TraceRecorder* recorder, std::int64_t step) {
    recorder_ = recorder;
    if (recorder_ == nullptr) return;
    waits_.drain();
    recorder_->begin_step(step);
}

void StepTimer::end() {
    if (recorder_ != nullptr) recorder_->end_step();
    recorder_ = nullptr;
}

void StepTimer::turn_to_end() {
    if (recorder_ != nullptr) recorder_->turn_to(-1);
}

void StepTimer::finish(Communication& communication) {
    if (recorder_ == nullptr || !communication.under_way()) return communication.finish();
    waits_.drain();
    const Seconds begin = steady_now();
    communication.finish();
    waits_.drain();
    recorder_->wait(communication.instruction(), begin, steady_now());
}

} // namespace tutti::runtime

// TraceRecorder: an executor's record of the steps that it traces: when its tasks ran, its waits, and its communication
// with other ranks. Its memory is taken when it is made; all times are of the steady clock.
#pragma once

#include "comm/group.h"
#include "program/program.h"

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::runtime {

struct RecordedTask {
    std::int32_t task = 0; // in Program::step
    Seconds begin, end;    // from when nothing held it up any more
};

struct RecordedWait {
    std::int32_t task = -1;                   // before or in which it was; -1: at the end of the step
    const Instruction* instruction = nullptr; // the communication that was waited for
    Seconds begin, end;
};

struct RecordedStep {
    std::int64_t step = 0;
    Seconds begin, end;
    std::vector<RecordedTask> tasks;
    std::vector<RecordedWait> waits;
    std::vector<comm::OperationRecord> operations; // in the order they were finished
};

class TraceRecorder {
  public:
    TraceRecorder(const Program& program, std::size_t steps); // at most so many

    // By the executor, in this order.
    void begin_step(std::int64_t step);
    void turn_to(std::int32_t task); // what is waited for from now on is for this task
    void wait(const Instruction& instruction, Seconds begin, Seconds end);
    void ran(std::int32_t task, Seconds begin, Seconds end);
    void end_step();

    // By any thread, when an operation is finished (World::observe). Those started outside of traced steps are passed
    // over.
    void finished(const comm::OperationRecord& operation);

    bool is_full() const { return begun_ == steps_.size(); }
    // The record of a step's last operation may come after the step has ended: communicate once more first.
    std::vector<RecordedStep> take();

  private:
    std::mutex mutex_; // the executor's thread and that of the world
    std::vector<RecordedStep> steps_;
    std::size_t begun_ = 0;
    std::int32_t task_ = -1;
};

} // namespace tutti::runtime

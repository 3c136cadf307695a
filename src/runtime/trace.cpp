#include "runtime/trace.h"

#include "base/error.h"
#include "comm/measure.h"

#include <limits>
#include <utility>

namespace tutti::runtime {
namespace {

std::size_t communications_in(const Program& program) {
    std::size_t count = 0;
    for (const Task& task : program.step) {
        if (task.segment < 0) continue;
        for (const Instruction& instruction : program.segments[static_cast<std::size_t>(task.segment)].instructions)
            count += instruction.lane == Lane::communication && (task.last || !instruction.only_last);
    }
    return count;
}

} // namespace

TraceRecorder::TraceRecorder(const Program& program, std::size_t steps) : steps_(steps) {
    const std::size_t communications = communications_in(program);
    for (RecordedStep& step : steps_) {
        step.tasks.reserve(program.step.size());
        step.waits.reserve(communications);
        step.operations.reserve(communications);
    }
}

void TraceRecorder::begin_step(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    TUTTI_CHECK(begun_ < steps_.size(), "{} steps were traced already", begun_);
    RecordedStep& one = steps_[begun_++];
    one.step = step;
    one.begin = steady_now();
    one.end = {std::numeric_limits<double>::infinity()};
    task_ = -1;
}

void TraceRecorder::turn_to(std::int32_t task) { task_ = task; }

void TraceRecorder::wait(const Instruction& instruction, Seconds begin, Seconds end) {
    steps_[begun_ - 1].waits.push_back({task_, &instruction, begin, end});
}

void TraceRecorder::ran(std::int32_t task, Seconds begin, Seconds end) {
    steps_[begun_ - 1].tasks.push_back({task, begin, end});
}

void TraceRecorder::end_step() {
    const std::lock_guard lock(mutex_);
    steps_[begun_ - 1].end = steady_now();
}

void TraceRecorder::finished(const comm::OperationRecord& operation) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = begun_; i-- > 0;)
        if (operation.begin >= steps_[i].begin) {
            if (operation.begin <= steps_[i].end) steps_[i].operations.push_back(operation);
            return;
        }
}

std::vector<RecordedStep> TraceRecorder::take() {
    const std::lock_guard lock(mutex_);
    steps_.resize(begun_);
    begun_ = 0;
    return std::exchange(steps_, {});
}

} // namespace tutti::runtime

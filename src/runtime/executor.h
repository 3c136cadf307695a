// Executor: runs a Program on a device. It prepares all kernels when it is made and gets its memory once; a step
// decides nothing. Communication starts where it stands in the order, and the first instruction that needs its result
// waits for it. A Program without communication is recorded once and replayed, if the device can do that (CUDA graphs).
#pragma once

#include "runtime/device_waits.h"
#include "runtime/step_recording.h"
#include "runtime/step_staging.h"
#include "runtime/step_timer.h"
#include "runtime/task_runner.h"

#include <functional>
#include <memory>

namespace tutti::runtime {

class Executor {
  public:
    using Load = LoadBatch;
    // Called before (done = false) and after each task, when what was given to the device so far has run.
    using Observer = std::function<void(const Task& task, bool done)>;
    using Probe = runtime::Probe;

    // Prepares every kernel. Nothing is allocated on the device yet. With links devices communicate by themselves.
    // Instructions on the host's lane run by `host`, on chunks in host memory; a Residence is bound then.
    Executor(const Program& program, const backend::Device& device, GroupTable& groups, DeviceLinks* links = nullptr,
             const backend::Device* host = nullptr);
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    // Memory beside the chunks: scalars, stash, transient, batch, results, constants; and the kernels' workspace.
    Bytes buffers() const { return runner_.memory().buffers(); }
    Bytes workspace() const { return runner_.memory().workspace_size(); }
    // What it needs, aligned as buffers are: several executors that never run at once may share one scratch.
    Bytes scratch() const { return buffers() + workspace(); }

    // Binds memory and runs the setup tasks. `scratch` is at least scratch() bytes; what lies in it may be overwritten
    // by another executor between steps, then `bind` again.
    void bind(const offload::ModelData& data, std::byte* scratch, offload::Residence* residence = nullptr);

    // Gives one step (or one evaluation) to the device. `most_begun` of them may be under way at a time; `finish` waits
    // for the oldest and returns its scalars with the results.
    static constexpr std::int64_t most_begun = StepStaging::most_under_way;
    // With a recorder the step is timed: task by task, each done on the device before the next begins.
    void begin(const StepScalars& scalars, const Load& load, TraceRecorder* trace = nullptr);
    StepScalars finish();
    Seconds finished_at() const { return finished_at_; } // the last of them, on the device; by steady_now
    // The updates that the last step left to the next one: before anybody looks at the model between steps.
    void complete_updates();
    // Begins and finishes one.
    StepScalars step(const StepScalars& scalars, const Load& load);
    // The same task by task, for those who look on.
    StepScalars step(const StepScalars& scalars, const Load& load, const Observer& observer, const Probe& probe = {});

    const Program& program() const { return program_; }
    std::byte* address(const Address& address, const Task& task = {}) const {
        return runner_.memory().address(address, task);
    }
    const NamedBuffer& output(std::string_view name) const;

  private:
    void run_tasks();

    const Program& program_;
    const backend::Device& device_;
    std::unique_ptr<backend::Queue> queue_;
    DeviceWaits waits_;
    StepTimer timer_;
    TaskRunner runner_;
    StepStaging staging_;
    StepRecording recording_;
    Seconds finished_at_;
};

} // namespace tutti::runtime

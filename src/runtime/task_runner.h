// TaskRunner: runs a task. It gives the instructions of its segment to the device's queue in order, with the fetches
// and evictions of chunks around them, and finishes a communication before the first instruction that needs its result.
#pragma once

#include "runtime/communication_under_way.h"
#include "runtime/deferred_updates.h"
#include "runtime/device_waits.h"
#include "runtime/host_updates.h"
#include "runtime/prepared_program.h"
#include "runtime/program_memory.h"
#include "runtime/step_timer.h"

#include <functional>
#include <vector>

namespace tutti::runtime {

// Called after each instruction has run: for finding out, not for training. The optimizer is skipped.
using Probe = std::function<void(const Task& task, const Instruction& instruction)>;

class TaskRunner {
  public:
    TaskRunner(const Program& program, const ProgramMachine& machine, backend::Queue& queue, DeviceWaits& waits,
               StepTimer& timer);

    const ProgramMemory& memory() const { return memory_; }
    bool has_residence() const { return residence_ != nullptr; }
    bool has_pending_updates() const { return deferred_.pending(); }

    void bind(const offload::ModelData& data, std::byte* scratch, offload::Residence* residence);
    void begin_step();                                                   // before its first task
    void await(const Task& task) { communication_.finish_before(task); } // what it needs from other ranks
    void run(const Task& task, const Probe& probe = {});
    void end_step(bool probes = false); // after its last task
    void complete_deferred_updates();
    // From now on devices communicate by themselves, where there are links. All ranks call it, after a step.
    void use_links();

  private:
    void run(const Task& task, PreparedInstruction& one, std::size_t number);
    void compute(const Task& task, const PreparedInstruction& one);
    void communicate(const Task& task, PreparedInstruction& one, std::size_t number);
    void take_from_own_stage(const PreparedInstruction& receive);
    void end_chunk_collectives();
    void bind(const Task& task, PreparedInstruction& one) const;
    backend::Launch launch_of(const PreparedInstruction& one) const;

    const Program& program_;
    ProgramMachine machine_;
    backend::Queue& queue_;
    DeviceWaits& waits_;
    PreparedProgram prepared_;
    ProgramMemory memory_;
    CommunicationUnderWay communication_;
    Route route_ = Route::host;
    std::vector<const std::byte*> sent_;      // by a stage of this rank, for another of its stages
    offload::Residence* residence_ = nullptr; // null: all model data is always on the device
    HostUpdates host_updates_;
    DeferredUpdates deferred_;
};

} // namespace tutti::runtime

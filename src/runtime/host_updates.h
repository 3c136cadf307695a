// HostUpdates: optimizer updates that the host computes on chunks in host memory. Only fetches of these chunks wait for
// them: a step may be over before its last updates are.
#pragma once

#include "backend/device.h"
#include "offload/execution/residence.h"
#include "runtime/prepared_program.h"
#include "runtime/program_memory.h"

#include <memory>
#include <vector>

namespace tutti::runtime {

// Copies of a step's scalars in host memory, taken each time that they have changed and are asked for. They take turns,
// since updates of the step before may still read theirs.
class HostScalars {
  public:
    struct Copy {
        StepScalars* memory = nullptr;
        std::shared_ptr<const backend::Event> there{}; // it has been taken
        std::shared_ptr<const backend::Event> used{};  // nobody reads it any more; null: nobody did
    };

    explicit HostScalars(std::size_t copies) : copies_(copies) {}

    void allocate(const backend::Device& device); // once
    void change() { is_current_ = false; }
    Copy& current(backend::Queue& queue, const StepScalars* on_device);

  private:
    std::unique_ptr<backend::Arena> host_;
    std::vector<Copy> copies_;
    std::size_t latest_ = 0; // counted on and on
    bool is_current_ = false;
};

class HostUpdates {
  public:
    // `host`: null where there are none.
    HostUpdates(const backend::Device* host, const PreparedProgram& program);

    void allocate(const backend::Device& device) { scalars_.allocate(device); }
    void scalars_changed() { scalars_.change(); }
    // When the queue has come as far as here, the host does an instruction's work on a thread.
    void start(const PreparedInstruction& one, const ProgramMemory& memory, backend::Queue& queue,
               offload::Residence& residence);

  private:
    HostScalars scalars_;
    std::unique_ptr<backend::Arena> workspace_; // of one kernel after the other
};

} // namespace tutti::runtime

// DeferredUpdates: updates that a step leaves to the next one, which runs each before its weights are first read. They
// use the scalars of their own step.
#pragma once

#include "offload/execution/residence.h"
#include "runtime/prepared_program.h"
#include "runtime/program_memory.h"

#include <functional>

namespace tutti::runtime {

class DeferredUpdates {
  public:
    explicit DeferredUpdates(const Program& program);

    bool pending() const { return pending_; }
    void leave(const ProgramMemory& memory, backend::Queue& queue); // at the end of a step
    // Runs those that are pending, and nothing else: goes through a step's fetches and evictions as far as there are
    // such updates, then has all of them end.
    using RunInstruction = std::function<void(const Task& task, PreparedInstruction& one)>;
    void complete(PreparedProgram& prepared, backend::Queue& queue, offload::Residence& residence,
                  const RunInstruction& run);

  private:
    const Program& program_;
    std::int64_t in_step_ = 0;
    bool pending_ = false;
};

} // namespace tutti::runtime

// ProgramMemory: where the operands of a program are while it runs. Model data lies in its chunks; all else in one
// piece of device memory, the scratch:
//
//   [scalars of the step | of the step that left updates] [buffers, as the MemoryMap says] [workspace of the kernels]
#pragma once

#include "memory/liveness.h"
#include "memory/memory_map.h"
#include "offload/execution/model_data.h"
#include "program/program.h"
#include "program/step_scalars.h"

#include <span>

namespace tutti::runtime {

class ProgramMemory {
  public:
    static constexpr std::int64_t scalars_bytes = memory::buffer_alignment; // of the scratch

    ProgramMemory(const Program& program, Bytes workspace);

    Bytes buffers() const { return map_.size(); } // with the scalars
    Bytes workspace_size() const { return workspace_; }
    const memory::MemoryMap& map() const { return map_; }

    void bind(const offload::ModelData& data, std::byte* scratch);
    bool is_bound_to(const offload::ModelData& data, const std::byte* scratch) const {
        return data_ == &data && scratch_ == scratch;
    }

    // As a task sees them.
    std::byte* address(const Address& address, const Task& task) const;
    void find(std::span<const Argument> arguments, const Task& task, std::span<const std::byte*> places) const;
    void find(std::span<const Argument> arguments, const Task& task, std::span<std::byte*> places) const;

    StepScalars* scalars() const { return reinterpret_cast<StepScalars*>(scratch_); }
    StepScalars* deferred_scalars() const { return scalars() + 1; }
    std::byte* batches() const { return scratch_ + map_.batches(); }
    std::byte* workspace() const { return scratch_ + buffers().count; }

  private:
    const Program* program_;
    memory::MemoryMap map_;
    Bytes workspace_;
    const offload::ModelData* data_ = nullptr;
    std::byte* scratch_ = nullptr;
};

} // namespace tutti::runtime

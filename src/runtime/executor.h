// Executor: runs a Program on a device. Kernels are prepared when it is made, memory is given to it once; a step then
// allocates nothing and decides nothing.
#pragma once

#include "backend/device.h"
#include "program/program.h"
#include "runtime/model_data.h"

#include <functional>
#include <memory>
#include <vector>

namespace tutti {

class Executor {
  public:
    // Fills the batch buffers, in the order of Program::inputs, for one micro-batch.
    using Load =
        std::function<void(std::int32_t micro_batch, std::span<std::byte* const> inputs, StepScalars& scalars)>;
    // Called before (done = false) and after each task.
    using Observer = std::function<void(const Task& task, bool done)>;

    // Called after each instruction has run: for finding out, not for training.
    using Probe = std::function<void(const Task& task, const Instruction& instruction)>;

    // Prepares every kernel. Nothing is allocated on the device yet.
    Executor(const Program& program, const Device& device);

    // Memory beside the chunks: stash, transient, batch, results, constants; and the kernels' workspace.
    Bytes buffers() const;
    Bytes workspace() const { return workspace_; }
    // What it needs, 64-byte aligned: several executors that never run at once may share one scratch.
    Bytes scratch() const { return buffers() + workspace_; }

    // Binds memory and runs the setup tasks. `scratch` is at least scratch() bytes; what lies in it may be overwritten
    // by another executor between steps, then `bind` again.
    void bind(const ModelData& data, std::byte* scratch);

    // One step (or one evaluation).
    void step(StepScalars& scalars, const Load& load, const Observer& observer = {}, const Probe& probe = {});

    const Program& program() const { return *program_; }
    std::byte* address(const Address& address, std::int32_t slot = 0) const;
    const NamedBuffer& output(std::string_view name) const;

  private:
    struct Prepared {
        const Instruction* instruction = nullptr;
        std::unique_ptr<Kernel> write;      // for outputs that are written, or accumulated into for the first time
        std::unique_ptr<Kernel> accumulate; // null where the same kernel always serves
        std::vector<const std::byte*> inputs;
        std::vector<std::byte*> outputs;
    };

    void run(const Task& task, StepScalars& scalars, const Probe& probe);

    const Program* program_;
    const Device* device_;
    const ModelData* data_ = nullptr;
    std::vector<std::vector<Prepared>> segments_;
    std::array<std::int64_t, region_count> offsets_{}; // of regions in the scratch
    std::byte* scratch_ = nullptr;
    Bytes buffers_, workspace_;
};

} // namespace tutti

// Executor: runs a Program on a device. Kernels are prepared when it is made, memory is given to it once; a step then
// decides nothing. Exchanges with other ranks start where they stand in the order and are waited for by who needs them.
// Where nothing is exchanged and the device can record work, a step is recorded once and replayed.
#pragma once

#include "backend/device.h"
#include "memory/memory_map.h"
#include "offload/execution/model_data.h"
#include "program/program.h"
#include "runtime/device_links.h"
#include "runtime/exchange.h"
#include "runtime/group_table.h"
#include "runtime/trace.h"

#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace tutti::runtime {

class Executor {
  public:
    // Fills the inputs of one micro-batch, in the order of Program::inputs: pointers to host memory.
    using Load = std::function<void(std::int32_t micro_batch, std::span<std::byte* const> inputs)>;
    // Called before (done = false) and after each task, when what was given to the device so far has run.
    using Observer = std::function<void(const Task& task, bool done)>;
    // Called after each instruction has run: for finding out, not for training.
    using Probe = std::function<void(const Task& task, const Instruction& instruction)>;

    // Prepares every kernel. Nothing is allocated on the device yet. With links devices exchange data by themselves.
    // What is on the host's lane runs by `host`, where chunks are at home: a residence is bound then.
    Executor(const Program& program, const backend::Device& device, GroupTable& groups, DeviceLinks* links = nullptr,
             const backend::Device* host = nullptr);

    // Memory beside the chunks: scalars, stash, transient, batch, results, constants; and the kernels' workspace.
    Bytes buffers() const { return buffers_; }
    Bytes workspace() const { return workspace_; }
    // What it needs, aligned as buffers are: several executors that never run at once may share one scratch.
    Bytes scratch() const { return buffers_ + workspace_; }

    // Binds memory and runs the setup tasks. `scratch` is at least scratch() bytes; what lies in it may be overwritten
    // by another executor between steps, then `bind` again.
    void bind(const offload::ModelData& data, std::byte* scratch, offload::Residence* residence = nullptr);

    // Gives one step (or one evaluation) to the device. `most_begun` of them may be under way at a time; `finish` waits
    // for the oldest and returns its scalars with the results.
    static constexpr std::int64_t most_begun = 2;
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

    const Program& program() const { return *program_; }
    std::byte* address(const Address& address, const Task& task = {}) const;
    const NamedBuffer& output(std::string_view name) const;

  private:
    struct Prepared {
        const Instruction* instruction = nullptr;
        bool touches_chunks = false;
        std::unique_ptr<backend::Kernel> write; // for outputs that are written, or accumulated into for the first time
        std::unique_ptr<backend::Kernel> accumulate; // null where the same kernel always serves
        std::unique_ptr<backend::Kernel> at_home;    // of the host's lane
        std::vector<const std::byte*> inputs;
        std::vector<std::byte*> outputs;
        comm::Group* group = nullptr;                     // of an exchange; null: between stages of this rank
        DeviceLink* link = nullptr;                       // null: by way of the host
        std::vector<std::unique_ptr<Exchange>> exchanges; // as many as were ever under way at once
    };
    // The host's side of a step under way: [scalars in][scalars out][batches].
    struct Staging {
        std::byte* memory = nullptr;
        std::shared_ptr<const backend::Event> done; // null: free
        Seconds finished;
    };

    void stage(Staging& staging, const StepScalars& scalars, const Load& load);
    void run(const Task& task, const Probe& probe = {});
    void run_tasks();
    void run_traced(const Task& task);
    void await(const Task& task);
    void finish(Exchange& exchange);
    void finish_oldest_of_chunks();
    void compute(const Task& task, Prepared& one);
    void compute_at_home(const Prepared& one);
    Exchange& exchange(Prepared& one);
    void hand_over(Prepared& one);
    void finish_message(std::int32_t task);
    void finish_detached();
    void finish_all();
    void settle(); // returns when all that was given to the queue has run
    void keep_pace();
    void link();
    void wait(const backend::Event& event);
    void bind(const Task& task, Prepared& one) const;
    std::int32_t number_of(const Task& task) const { return static_cast<std::int32_t>(&task - program_->step.data()); }
    StepScalars* device_scalars() const { return reinterpret_cast<StepScalars*>(scratch_); }
    StepScalars* left_scalars() const { return device_scalars() + 1; } // of the step that left updates
    void leave_updates();

    const Program* program_;
    const backend::Device* device_;
    DeviceLinks* links_;
    bool linked_ = false;                             // exchanges go through them
    std::int64_t given_ = 0;                          // instructions, to the queue
    std::shared_ptr<const backend::Event> last_pace_; // some of them have run
    const offload::ModelData* data_ = nullptr;
    offload::Residence* residence_ = nullptr; // null: all model data is always there
    std::unique_ptr<backend::Queue> queue_;
    std::vector<std::vector<Prepared>> segments_;
    memory::MemoryMap map_;
    std::byte* scratch_ = nullptr;
    std::vector<std::vector<Exchange*>> messages_; // per task of the step: under way
    std::vector<Exchange*> under_way_;             // per instruction of the segment that runs
    std::vector<Exchange*> detached_;              // exchanges of whole chunks, which the norm waits for
    std::vector<Exchange*> of_chunks_;             // of the task that runs, where chunks come and go
    std::vector<const std::byte*> handed_over_;    // what a stage of this rank has for the next
    Bytes buffers_, workspace_;
    std::unique_ptr<backend::Arena> host_;
    std::array<Staging, most_begun> staging_;
    std::int64_t begun_ = 0, finished_ = 0;
    Seconds finished_at_;
    // What work at home reads of a step's scalars, after each time that a norm was known; the step may be over before
    // that work is.
    struct ScalarsAtHome {
        StepScalars* memory = nullptr;
        std::shared_ptr<const backend::Event> there, used;
    };
    std::vector<ScalarsAtHome> scalars_at_home_;        // in turn
    std::unique_ptr<backend::Arena> workspace_at_home_; // of one kernel after the other
    std::size_t copied_home_ = 0;
    bool has_scalars_at_home_ = false; // the latest
    std::int64_t leaves_ = 0;          // updates that a step leaves to the next
    bool has_left_ = false;            // and such are there
    std::unique_ptr<backend::Recording> recording_;
    TraceRecorder* trace_ = nullptr; // of the step that begins
    bool warm_ = false;              // a step has run since bind: libraries have loaded what they load when first used
};

} // namespace tutti::runtime

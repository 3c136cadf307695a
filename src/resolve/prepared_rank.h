// PreparedRank: what a rank runs by a plan. Its programs are compiled and their kernels prepared; nothing is allocated
// on the device yet.
#pragma once

#include "backend/device.h"
#include "compile/compile.h"
#include "models/model.h"
#include "offload/offload_plan.h"
#include "run/memory_table.h"
#include "runtime/device_links.h"
#include "runtime/executor.h"
#include "runtime/group_table.h"

#include <memory>
#include <optional>

namespace tutti::resolve {

// Where a rank runs, and what. All but the plan; kept by reference.
struct RankMachine {
    const models::ModelSource& source;
    backend::Device& device;
    const backend::Device& host; // updates model data in host memory
    runtime::GroupTable& groups;
    runtime::DeviceLinks* links = nullptr; // null: communication goes by way of the host
    bool evaluates = false;
};

struct PreparedRank {
    // Behind pointers: executors keep to the programs' addresses.
    std::unique_ptr<compile::Compiled> compiled;
    std::unique_ptr<Program> evaluation; // null: none
    std::optional<offload::OffloadPlan> offload;
    std::unique_ptr<runtime::Executor> executor, evaluator;

    const Program& program() const { return compiled->program; }
    Bytes scratch() const; // enough for either executor
    Bytes chunk_memory() const;
    Bytes device_memory() const { return chunk_memory() + scratch(); }
};

// The graph that a plan is compiled with: of a micro-batch, or of half of one with sub_pipeline.
models::Model build(const models::ModelSource& source, const Plan& plan);

// All ranks call it with the same plan. What the plan's residency leaves open is not in `offload`. Error where the plan
// does not fit the model. `seconds`: see offload::FollowOptions.
PreparedRank prepare(const RankMachine& machine, const Plan& plan, const offload::InstructionSeconds& seconds = {});

// The memory table of the rank.
run::MemoryTable memory_of(const PreparedRank& rank, const Plan& plan, const RankMachine& machine);
// Chunks and activations, of a program whose model data is all on the device.
run::MemoryTable chunks_and_activations(const Program& program);
// Memory that ranks need for the communication of chunks.
Bytes room_of_groups(const Program& program, comm::World& world);

} // namespace tutti::resolve

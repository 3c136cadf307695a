// PreparedProgram: the instructions of a Program, each with its prepared kernel or its link to other ranks. Everything
// that depends on the instruction alone is looked up here, once, before the first step.
#pragma once

#include "backend/device.h"
#include "program/program.h"
#include "runtime/communication_pool.h"
#include "runtime/group_table.h"

#include <memory>
#include <vector>

namespace tutti::runtime {

// How an instruction's work is done.
enum class WorkKind : std::uint8_t {
    device_kernel,
    host_kernel,   // on model data in its backing tier
    communication, // a message or collective, with other ranks
    local_send,    // from one stage of this rank to another of its stages
    local_receive,
};

struct PreparedInstruction {
    const Instruction* instruction = nullptr;
    WorkKind kind = WorkKind::device_kernel;
    bool touches_chunks = false;              // or offloaded activations: it is a time point of the residency plan
    bool is_detached = false;                 // see program.h
    bool ends_with_task = false;              // see offload/time_points.h
    bool updates_weights = false;             // of the optimizer
    bool sets_scalars = false;                // the norm, the loss and the clip factor of the step
    std::unique_ptr<backend::Kernel> write{}; // overwrites all outputs; null where they are always accumulated into
    std::unique_ptr<backend::Kernel> accumulate{}; // null where no output is
    CommunicationPool communications{};
    std::vector<const std::byte*> inputs{}; // as bound for a task
    std::vector<std::byte*> outputs{};
};

struct PreparedSegment {
    std::vector<PreparedInstruction> instructions;
    bool ends_with_time_point = false; // see offload/time_points.h
};

struct PreparedProgram {
    std::vector<PreparedSegment> segments;
    Bytes workspace{}, host_workspace{}; // enough for each of the kernels
    int scalar_changes = 0;              // instructions that set scalars

    PreparedSegment& of(const Task& task) { return segments[static_cast<std::size_t>(task.segment)]; }
};

// Where a program runs.
struct ProgramMachine {
    const backend::Device& device;
    const backend::Device* host = nullptr; // works on model data in its backing tier; null: none does
    GroupTable& groups;
    DeviceLinks* links = nullptr; // null: all communication is by way of the host
};

// All ranks call it at the same time. The program stays where it is. Nothing is allocated on the device.
PreparedProgram prepare_program(const Program& program, const ProgramMachine& machine);

} // namespace tutti::runtime

#include "runtime/prepared_program.h"

#include "base/error.h"
#include "offload/time_points.h"
#include "runtime/prepare.h"

#include <algorithm>

namespace tutti::runtime {
namespace {

// A message from one stage of this rank to the next: a local copy.
Instruction copy_of(const Instruction& receive) {
    Instruction copy{.op = "contiguous", .inputs = receive.outputs, .outputs = receive.outputs};
    return copy;
}

void prepare_communication(PreparedInstruction& one, const Program& program, const ProgramMachine& machine) {
    const Instruction& instruction = *one.instruction;
    comm::Group& group = machine.groups.at(program.groups[static_cast<std::size_t>(instruction.group)]);
    if (instruction.peer != group.rank()) {
        one.kind = WorkKind::communication;
        one.communications = {group, machine.links ? &machine.links->at(program, instruction) : nullptr};
    } else if (instruction.kind == InstructionKind::receive) {
        one.kind = WorkKind::local_receive;
        one.write = prepare(machine.device, copy_of(instruction), false);
    } else {
        one.kind = WorkKind::local_send;
    }
}

void prepare_host_kernel(PreparedInstruction& one, const ProgramMachine& machine) {
    TUTTI_CHECK(machine.host != nullptr, "{} runs on the host, and there is none", one.instruction->op);
    one.kind = WorkKind::host_kernel;
    one.write = prepare(*machine.host, *one.instruction, false);
}

void prepare_device_kernels(PreparedInstruction& one, const ProgramMachine& machine) {
    const Instruction& instruction = *one.instruction;
    if (adds(instruction)) one.accumulate = prepare(machine.device, instruction, true);
    if (!adds(instruction) || instruction.first_overwrites) one.write = prepare(machine.device, instruction, false);
}

PreparedInstruction prepare_instruction(const Instruction& instruction, const Program& program,
                                        const ProgramMachine& machine) {
    PreparedInstruction one{.instruction = &instruction,
                            .touches_chunks = offload::touches_chunks(instruction),
                            .is_detached = is_detached(instruction),
                            .ends_with_task = offload::ends_with_task(program, instruction),
                            .updates_weights = instruction.kind == InstructionKind::update,
                            .sets_scalars = instruction.kind == InstructionKind::finish_norm};
    one.inputs.resize(instruction.inputs.size());
    one.outputs.resize(instruction.outputs.size());
    if (instruction.lane == Lane::communication)
        prepare_communication(one, program, machine);
    else if (instruction.lane == Lane::host)
        prepare_host_kernel(one, machine);
    else
        prepare_device_kernels(one, machine);
    return one;
}

} // namespace

PreparedProgram prepare_program(const Program& program, const ProgramMachine& machine) {
    if (machine.links != nullptr) machine.links->connect(program);
    PreparedProgram prepared;
    for (const Segment& segment : program.segments) {
        PreparedSegment& into = prepared.segments.emplace_back();
        into.ends_with_time_point = offload::ends_with_time_point(segment);
        for (const Instruction& instruction : segment.instructions) {
            const PreparedInstruction& one =
                into.instructions.emplace_back(prepare_instruction(instruction, program, machine));
            Bytes& workspace = one.kind == WorkKind::host_kernel ? prepared.host_workspace : prepared.workspace;
            for (const auto* kernel : {&one.write, &one.accumulate})
                if (*kernel) workspace = std::max(workspace, (*kernel)->workspace());
            prepared.scalar_changes += one.sets_scalars ? 1 : 0;
        }
    }
    return prepared;
}

} // namespace tutti::runtime

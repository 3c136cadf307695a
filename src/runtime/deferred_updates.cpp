#include "runtime/deferred_updates.h"

#include <algorithm>

namespace tutti::runtime {

DeferredUpdates::DeferredUpdates(const Program& program) : program_(program) {
    for (const Segment& segment : program.segments)
        in_step_ += std::ranges::count(segment.instructions, true, &Instruction::of_last_step);
}

void DeferredUpdates::leave(const ProgramMemory& memory, backend::Queue& queue) {
    if (in_step_ == 0) return;
    constexpr std::int64_t bytes = sizeof(StepScalars);
    queue.copy_blocks(reinterpret_cast<std::byte*>(memory.deferred_scalars()), bytes,
                      reinterpret_cast<const std::byte*>(memory.scalars()), bytes, bytes, 1);
    pending_ = true;
}

void DeferredUpdates::complete(PreparedProgram& prepared, backend::Queue& queue, offload::Residence& residence,
                               const RunInstruction& run) {
    residence.begin_step();
    std::int64_t left = in_step_;
    for (const Task& task : program_.step) {
        if (task.segment < 0) continue;
        PreparedSegment& segment = prepared.of(task);
        for (PreparedInstruction& one : segment.instructions) {
            if (left == 0 || !one.touches_chunks || !is_run_by(*one.instruction, task)) continue;
            residence.before(queue);
            if (one.instruction->of_last_step) {
                run(task, one);
                --left;
            }
            residence.after(queue);
        }
        if (left == 0) break;
        if (!segment.ends_with_time_point) continue;
        residence.before(queue);
        residence.after(queue);
    }
    pending_ = false;
    residence.evict_all();
}

} // namespace tutti::runtime

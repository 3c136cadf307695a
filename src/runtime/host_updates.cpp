#include "runtime/host_updates.h"

#include "base/error.h"
#include "runtime/step_staging.h"

#include <utility>

namespace tutti::runtime {

void HostScalars::allocate(const backend::Device& device) {
    if (host_ || copies_.empty()) return;
    constexpr std::int64_t each = ProgramMemory::scalars_bytes;
    host_ = device.allocate_staging({static_cast<std::int64_t>(copies_.size()) * each});
    std::byte* memory = host_->data();
    for (Copy& copy : copies_) copy.memory = reinterpret_cast<StepScalars*>(std::exchange(memory, memory + each));
}

HostScalars::Copy& HostScalars::current(backend::Queue& queue, const StepScalars* on_device) {
    TUTTI_CHECK(!copies_.empty(), "there is no memory for copies of a step's scalars");
    if (is_current_) return copies_[latest_ % copies_.size()];
    Copy& next = copies_[++latest_ % copies_.size()];
    if (next.used) next.used->synchronize();
    queue.copy_out(std::as_writable_bytes(std::span(next.memory, 1)), reinterpret_cast<const std::byte*>(on_device));
    next.there = queue.mark();
    is_current_ = true;
    return next;
}

HostUpdates::HostUpdates(const backend::Device* host, const PreparedProgram& program)
    : scalars_(host ? static_cast<std::size_t>(StepStaging::most_under_way * program.scalar_changes) : 0) {
    if (program.host_workspace.count > 0) workspace_ = host->allocate(program.host_workspace);
}

void HostUpdates::start(const PreparedInstruction& one, const ProgramMemory& memory, backend::Queue& queue,
                        offload::Residence& residence) {
    HostScalars::Copy& scalars = scalars_.current(queue, memory.scalars());
    auto in_backing_tier = [&](const Argument& argument) {
        const Address& address = argument.address;
        return residence.memory_on_host({address.region, address.chunk}) + address.offset;
    };
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (const Argument& input : one.instruction->inputs) inputs.push_back(in_backing_tier(input));
    for (const Argument& output : one.instruction->outputs) outputs.push_back(in_backing_tier(output));
    scalars.used = residence.work_on_host(
        [kernel = one.write.get(), inputs = std::move(inputs), outputs = std::move(outputs),
         workspace = workspace_ ? workspace_->data() : nullptr, memory = scalars.memory, there = scalars.there] {
            there->synchronize();
            kernel->run({.inputs = inputs, .outputs = outputs, .workspace = workspace, .scalars = memory});
        });
}

} // namespace tutti::runtime

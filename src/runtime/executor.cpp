#include "runtime/executor.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

#include <algorithm>

namespace tutti {
namespace {

std::unique_ptr<Kernel> prepare(const Device& device, const Instruction& instruction, bool accumulate) {
    KernelRequest request{.op = instruction.op,
                          .attributes = instruction.attributes,
                          .inputs = {},
                          .outputs = {},
                          .accumulate = accumulate,
                          .source = instruction.source};
    for (const Argument& input : instruction.inputs) request.inputs.push_back({input.type, input.strides});
    for (const Argument& output : instruction.outputs) request.outputs.push_back({output.type, output.strides});
    return device.prepare(request);
}

} // namespace

Executor::Executor(const Program& program, const Device& device) : program_(&program), device_(&device) {
    auto largest = [this](const std::unique_ptr<Kernel>& kernel) {
        if (kernel) workspace_ = std::max(workspace_, kernel->workspace());
    };
    for (const Segment& segment : program.segments) {
        std::vector<Prepared>& prepared = segments_.emplace_back();
        for (const Instruction& instruction : segment.instructions) {
            const bool adds = std::ranges::any_of(instruction.outputs,
                                                  [](const Argument& out) { return out.access == Access::accumulate; });
            Prepared& one = prepared.emplace_back();
            one.instruction = &instruction;
            one.inputs.resize(instruction.inputs.size());
            one.outputs.resize(instruction.outputs.size());
            if (adds) one.accumulate = prepare(device, instruction, true);
            if (!adds || instruction.first_overwrites) one.write = prepare(device, instruction, false);
            largest(one.write);
            largest(one.accumulate);
        }
    }
    std::int64_t end = 0;
    for (std::size_t region = 0; region < region_count; ++region) {
        if (is_chunk(static_cast<Region>(region))) continue;
        offsets_[region] = end;
        const std::int64_t copies = static_cast<Region>(region) == Region::stash ? program.slots : 1;
        end += copies * round_up(program.sizes[region].count, buffer_alignment);
    }
    buffers_ = {end};
    workspace_ = {round_up(workspace_.count, buffer_alignment)};
}

Bytes Executor::buffers() const { return buffers_; }

std::byte* Executor::address(const Address& address, std::int32_t slot) const {
    if (is_chunk(address.region)) return data_->chunk(address.region, address.chunk) + address.offset;
    const auto region = static_cast<std::size_t>(address.region);
    std::int64_t offset = offsets_[region] + address.offset;
    if (address.region == Region::stash) offset += slot * round_up(program_->sizes[region].count, buffer_alignment);
    return scratch_ + offset;
}

const NamedBuffer& Executor::output(std::string_view name) const {
    const auto found = std::ranges::find(program_->outputs, name, &NamedBuffer::name);
    TUTTI_CHECK(found != program_->outputs.end(), "the program has no output {}", name);
    return *found;
}

void Executor::bind(const ModelData& data, std::byte* scratch) {
    data_ = &data;
    scratch_ = scratch;
    StepScalars none;
    for (const Task& task : program_->setup) run(task, none, {});
    device_->synchronize();
}

void Executor::step(StepScalars& scalars, const Load& load, const Observer& observer, const Probe& probe) {
    std::vector<std::byte*> inputs;
    for (const NamedBuffer& input : program_->inputs) inputs.push_back(address(input.buffer.address));
    for (const Task& task : program_->step) {
        if (observer) observer(task, false);
        if (task.kind == TaskKind::load)
            load(task.micro_batch, inputs, scalars);
        else
            run(task, scalars, probe);
        if (observer) observer(task, true);
    }
    device_->synchronize();
}

void Executor::run(const Task& task, StepScalars& scalars, const Probe& probe) {
    std::byte* const workspace = scratch_ + buffers_.count;
    for (Prepared& one : segments_[static_cast<std::size_t>(task.segment)]) {
        const Instruction& instruction = *one.instruction;
        for (std::size_t i = 0; i < one.inputs.size(); ++i)
            one.inputs[i] = address(instruction.inputs[i].address, task.slot);
        for (std::size_t i = 0; i < one.outputs.size(); ++i)
            one.outputs[i] = address(instruction.outputs[i].address, task.slot);
        const bool first = instruction.first_overwrites && task.micro_batch == 0;
        const Kernel& kernel = one.accumulate && !first ? *one.accumulate : *one.write;
        kernel.run({one.inputs, one.outputs, workspace, &scalars});
        if (!probe) continue;
        device_->synchronize();
        probe(task, instruction);
    }
}

} // namespace tutti

#include "program/program.h"

#include "base/error.h"
#include "graph/operator.h"

#include <algorithm>

namespace tutti {

InstructionKind kind_of(const Operator& op) {
    if (op.collective) {
        switch (*op.collective) {
        case AxisCollective::all_reduce: return InstructionKind::all_reduce;
        case AxisCollective::all_gather: return InstructionKind::all_gather;
        case AxisCollective::reduce_scatter: return InstructionKind::reduce_scatter;
        case AxisCollective::all_to_all: return InstructionKind::all_to_all;
        }
    }
    if (op.step_role) {
        switch (*op.step_role) {
        case StepRole::squared_norm: return InstructionKind::squared_norm;
        case StepRole::finish_norm: return InstructionKind::finish_norm;
        case StepRole::update: return InstructionKind::update;
        }
    }
    return InstructionKind::kernel;
}

Instruction communication_of(InstructionKind kind, std::int32_t group, Attributes attributes, std::int32_t peer) {
    return {.op = std::string(name_of(kind)),
            .kind = kind,
            .attributes = std::move(attributes),
            .lane = Lane::communication,
            .group = group,
            .peer = peer};
}

std::string_view name_of(InstructionKind kind) {
    switch (kind) {
    case InstructionKind::kernel: return "kernel";
    case InstructionKind::squared_norm: return "squared_norm";
    case InstructionKind::finish_norm: return "finish_norm";
    case InstructionKind::update: return "update";
    case InstructionKind::all_reduce: return "all_reduce";
    case InstructionKind::all_gather: return "all_gather";
    case InstructionKind::reduce_scatter: return "reduce_scatter";
    case InstructionKind::all_to_all: return "all_to_all";
    case InstructionKind::gather_chunk: return "gather_chunk";
    case InstructionKind::reduce_chunk: return "reduce_chunk";
    case InstructionKind::send: return "send";
    case InstructionKind::receive: return "receive";
    }
    return "?";
}

std::string_view name_of(TaskKind kind) {
    switch (kind) {
    case TaskKind::setup: return "setup";
    case TaskKind::load: return "load";
    case TaskKind::clear: return "clear";
    case TaskKind::forward: return "forward";
    case TaskKind::backward: return "backward";
    case TaskKind::weight_gradient: return "weight gradient";
    case TaskKind::norm: return "norm";
    case TaskKind::update: return "update";
    case TaskKind::recompute: return "recompute";
    case TaskKind::send: return "send";
    case TaskKind::receive: return "receive";
    case TaskKind::gather: return "gather";
    case TaskKind::reduce: return "reduce";
    }
    return "?";
}

std::string_view name_of(Region region) {
    static constexpr std::array<std::string_view, region_count> names = {
        "weights",  "gradients", "master",     "moments1", "moments2", "constants", "batch",     "results",
        "received", "stash",     "recomputed", "returned", "deferred", "outbox",    "transient", "offloaded"};
    return names[static_cast<std::size_t>(region)];
}

Range Program::owned_of(Region region, std::int32_t chunk) const {
    const std::vector<Range>& ranges = owned[static_cast<std::size_t>(region)];
    const auto c = static_cast<std::size_t>(chunk);
    return ranges.empty() ? Range{0, chunk_elements[c]} : ranges[c];
}

bool is_detached(const Instruction& instruction) {
    auto in_chunk = [](const Argument& argument) { return is_chunk(argument.address.region); };
    return instruction.lane == Lane::communication && instruction.only_last && !instruction.awaited &&
           std::ranges::all_of(instruction.inputs, in_chunk) && std::ranges::all_of(instruction.outputs, in_chunk);
}

Bytes communicated_bytes(const Instruction& instruction) {
    const Bytes in = instruction.inputs.empty() ? Bytes{} : instruction.inputs[0].type.bytes();
    const Bytes out = instruction.outputs.empty() ? Bytes{} : instruction.outputs[0].type.bytes();
    return std::max(in, out);
}

bool adds(const Instruction& instruction) {
    return std::ranges::any_of(instruction.outputs,
                               [](const Argument& out) { return out.access == Access::accumulate; });
}

bool accumulates(const Instruction& instruction, const Task& task) {
    return adds(instruction) && !(instruction.first_overwrites && task.first);
}

Bytes slot_bytes(const Program& program, Region region) {
    Bytes total;
    for (const LocalStage& stage : program.stages) total += stage.slots[slotted(region)] * stage.sizes[slotted(region)];
    return total;
}

std::int32_t piece_number(const Program& program, const Address& address, const Task& task) {
    auto count = [](const LocalStage& stage) { return static_cast<std::int32_t>(stage.pieces.size()); };
    const auto local = static_cast<std::size_t>(task.local);
    std::int32_t before = 0;
    for (std::size_t s = 0; s < local; ++s)
        before += program.stages[s].slots[slotted(Region::stash)] * count(program.stages[s]);
    return before + task.slots[slotted(Region::stash)] * count(program.stages[local]) + address.chunk;
}

Bytes piece_bytes(const Program& program) {
    Bytes total;
    for (const LocalStage& stage : program.stages)
        for (const Bytes& piece : stage.pieces) total += stage.slots[slotted(Region::stash)] * piece;
    return total;
}

bool has_chunks(const Program& program, Region region) {
    return region == Region::weights || (program.trains && (region != Region::master || program.has_master));
}

Bytes chunk_bytes(const Program& program, Region region) {
    std::int64_t elements = 0;
    for (std::size_t c = 0; c < program.chunk_elements.size(); ++c)
        elements += program.owned_of(region, static_cast<std::int32_t>(c)).size();
    return {has_chunks(program, region) ? elements * size_of(program.chunk_dtypes[static_cast<std::size_t>(region)])
                                        : 0};
}

namespace {

std::string argument_text(const Argument& argument) {
    const Address& at = argument.address;
    const std::string chunk = may_be_offloaded(at.region) ? fmt::format("[{}]", at.chunk) : "";
    const std::string layout =
        is_dense(argument.type.shape, argument.strides) ? "" : " strides " + to_string(argument.strides);
    return fmt::format("{}{}{}+{}:{}{}", argument.access == Access::accumulate ? "+= " : "", name_of(at.region), chunk,
                       at.offset, to_string(argument.type), layout);
}

} // namespace

std::string to_text(const Program& program) {
    std::string text;
    auto tasks = [&](std::string_view title, const std::vector<Task>& list) {
        text += fmt::format("{}:\n", title);
        for (std::size_t i = 0; i < list.size(); ++i)
            text += fmt::format("  {:3} {} stage {} micro-batch {} slots {} segment {} waits {}\n", i,
                                name_of(list[i].kind), list[i].stage, list[i].micro_batch,
                                fmt::join(list[i].slots, ","), list[i].segment, fmt::join(list[i].waits, ","));
    };
    tasks("setup", program.setup);
    tasks("step", program.step);
    for (std::size_t s = 0; s < program.segments.size(); ++s) {
        const Segment& segment = program.segments[s];
        text += fmt::format("segment {}: {} of stage {}, transient {}\n", s, name_of(segment.kind), segment.stage,
                            to_string(segment.transient));
        for (const Instruction& instruction : segment.instructions) {
            std::string inputs, outputs;
            for (const Argument& in : instruction.inputs) inputs += (inputs.empty() ? "" : ", ") + argument_text(in);
            for (const Argument& out : instruction.outputs)
                outputs += (outputs.empty() ? "" : ", ") + argument_text(out);
            text += fmt::format("  {} <- {}({}){}\n", outputs, instruction.op, inputs,
                                instruction.source.empty() ? "" : " @" + instruction.source);
        }
    }
    return text;
}

} // namespace tutti

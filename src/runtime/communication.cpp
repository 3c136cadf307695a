#include "runtime/communication.h"

#include "base/error.h"
#include "memory/liveness.h"

#include <cstring>

namespace tutti::runtime {
namespace {

Bytes size_of_first(const std::vector<Argument>& arguments) {
    return arguments.empty() ? Bytes{} : arguments.front().type.bytes();
}

std::int64_t aligned(Bytes bytes) {
    return (bytes.count + memory::buffer_alignment - 1) / memory::buffer_alignment * memory::buffer_alignment;
}

Combine combine_of(const Instruction& instruction) {
    return instruction.attributes.has("combine") && instruction.attributes.text("combine") == "maximum"
               ? Combine::maximum
               : Combine::sum;
}

std::span<const std::byte> bytes_at(const std::byte* data, Bytes size) {
    return {data, static_cast<std::size_t>(size.count)};
}
std::span<std::byte> bytes_at(std::byte* data, Bytes size) { return {data, static_cast<std::size_t>(size.count)}; }

} // namespace

CommunicationLayout::CommunicationLayout(const Instruction& instruction, int group_size)
    : in(size_of_first(instruction.inputs)), out(size_of_first(instruction.outputs)),
      dtype((in.count > 0 ? instruction.inputs : instruction.outputs)[0].type.dtype), combine(combine_of(instruction)) {
    const Attributes& attributes = instruction.attributes;
    auto keep = [](std::optional<Packing>& place, std::vector<std::int64_t>& counts, Packing packing) {
        counts = packing.counts();
        if (!packing.in_place()) place = std::move(packing);
    };
    switch (instruction.kind) {
    case InstructionKind::all_gather:
        keep(gathered, in_counts, {instruction.outputs[0].type, attributes, "dim", "parts"});
        return;
    case InstructionKind::reduce_scatter:
        keep(scattered, out_counts, {instruction.inputs[0].type, attributes, "dim", "parts"});
        return;
    case InstructionKind::all_to_all:
        keep(scattered, out_counts, {instruction.inputs[0].type, attributes, "scatter_dim", "scatter_parts"});
        keep(gathered, in_counts, {instruction.outputs[0].type, attributes, "gather_dim", "gather_parts"});
        return;
    case InstructionKind::gather_chunk: in_counts.assign(static_cast<std::size_t>(group_size), in.count); return;
    case InstructionKind::reduce_chunk: out_counts.assign(static_cast<std::size_t>(group_size), out.count); return;
    case InstructionKind::all_reduce:
    case InstructionKind::send:
    case InstructionKind::receive: return;
    case InstructionKind::kernel:
    case InstructionKind::squared_norm:
    case InstructionKind::finish_norm:
    case InstructionKind::update: break;
    }
    throw Bug(fmt::format("{} is not a communication", instruction.op));
}

HostCommunication::HostCommunication(const Instruction& instruction, comm::Group& group, const backend::Device& device)
    : Communication(instruction), group_(&group), device_(&device), layout_(instruction, group.size()) {
    if (device.memory()) {
        const auto &scattered = layout_.scattered, &gathered = layout_.gathered;
        const std::int64_t packing = (scattered ? scattered->bytes() : 0) + (gathered ? gathered->bytes() : 0);
        host_ = device.allocate_staging({aligned(layout_.in) + aligned(layout_.out) + packing});
    }
}

void HostCommunication::start(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                              backend::Queue& queue) {
    TUTTI_CHECK(!under_way_, "{} is under way already", instruction().op);
    under_way_ = true;
    const std::byte* in = inputs.empty() ? nullptr : inputs[0];
    std::byte* out = outputs.empty() ? nullptr : outputs[0];
    std::byte* packing = outputs.size() > 1 ? outputs[1] : nullptr;
    destination_ = out;
    if (host_) {
        std::byte* const copy = host_->data();
        if (in != nullptr) queue.copy_out(bytes_at(copy, layout_.in), in);
        queue.synchronize();
        in = in ? copy : nullptr;
        out = copy + aligned(layout_.in);
        packing = out + aligned(layout_.out);
        // What is reduced or gathered in place is so here, too.
        if (instruction().kind == InstructionKind::all_reduce) out = copy;
    }
    result_ = out;
    ticket_ = begin(in, out, packing);
}

comm::Ticket HostCommunication::begin(const std::byte* in, std::byte* out, std::byte* packing) {
    const auto& [in_size, out_size, dtype, combine, scattered, gathered, out_counts, in_counts] = layout_;
    if (scattered) {
        scattered->pack(in, packing);
        in = packing;
        packing += scattered->bytes();
    }
    packed_ = gathered ? packing : out;
    switch (instruction().kind) {
    case InstructionKind::send: return group_->send(bytes_at(in, in_size), instruction().peer);
    case InstructionKind::receive: return group_->receive(bytes_at(out, out_size), instruction().peer);
    case InstructionKind::all_reduce:
        if (out != in) std::memcpy(out, in, static_cast<std::size_t>(in_size.count));
        return group_->all_reduce(bytes_at(out, out_size), dtype, combine);
    case InstructionKind::all_gather:
    case InstructionKind::gather_chunk:
        return group_->all_gather(bytes_at(in, in_size), bytes_at(packed_, out_size), in_counts);
    case InstructionKind::reduce_scatter:
    case InstructionKind::reduce_chunk:
        return group_->reduce_scatter(bytes_at(in, in_size), bytes_at(out, out_size), out_counts, dtype, combine);
    case InstructionKind::all_to_all:
        return group_->all_to_all(bytes_at(in, in_size), out_counts, bytes_at(packed_, out_size), in_counts);
    case InstructionKind::kernel:
    case InstructionKind::squared_norm:
    case InstructionKind::finish_norm:
    case InstructionKind::update: break;
    }
    throw Bug(fmt::format("{} is not a communication", instruction().op));
}

void HostCommunication::finish() {
    if (!under_way_) return;
    group_->wait(ticket_);
    under_way_ = false;
    if (layout_.gathered) layout_.gathered->unpack(packed_, result_);
    if (host_ && destination_ != nullptr) device_->copy_in(destination_, bytes_at(std::as_const(result_), layout_.out));
}

} // namespace tutti::runtime

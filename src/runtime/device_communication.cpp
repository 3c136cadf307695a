#include "runtime/device_communication.h"

#include "base/error.h"

namespace tutti::runtime {

DeviceCommunication::DeviceCommunication(const Instruction& instruction, DeviceLink& link)
    : Communication(instruction), link_(&link), layout_(instruction, link.group().size()) {}

void DeviceCommunication::start(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                                backend::Queue& queue) {
    TUTTI_CHECK(!done_, "{} is under way already", instruction().op);
    kernels_ = &queue;
    DeviceLink::Moment ready = queue.mark();
    link_->queue().wait(ready);
    give(inputs.empty() ? nullptr : inputs[0], outputs.empty() ? nullptr : outputs[0],
         outputs.size() > 1 ? outputs[1] : nullptr);
    done_ = link_->mark(std::move(ready));
}

void DeviceCommunication::give(const std::byte* in, std::byte* out, std::byte* packing) {
    const auto& [in_size, out_size, dtype, combine, scattered, gathered, out_counts, in_counts] = layout_;
    comm::DeviceGroup& group = link_->group();
    backend::Queue& queue = link_->queue();
    comm::Stream stream = queue.native();
    if (scattered) {
        for (const Packing::Blocks& b : scattered->blocks())
            queue.copy_blocks(packing + b.packed, b.packed_stride, in + b.tensor, b.tensor_stride, b.bytes, b.count);
        in = packing;
        packing += scattered->bytes();
    }
    std::byte* const packed = gathered ? packing : out;
    switch (instruction().kind) {
    // A link for messages has two members: the sender and the receiver.
    case InstructionKind::send: group.send(in, in_size, 1, stream); break;
    case InstructionKind::receive: group.receive(out, out_size, 0, stream); break;
    case InstructionKind::all_reduce: group.all_reduce(in, out, out_size, dtype, combine, stream); break;
    case InstructionKind::all_gather:
    case InstructionKind::gather_chunk: group.all_gather(in, packed, in_counts, stream); break;
    case InstructionKind::reduce_scatter:
    case InstructionKind::reduce_chunk: group.reduce_scatter(in, out, out_counts, dtype, combine, stream); break;
    case InstructionKind::all_to_all: group.all_to_all(in, out_counts, packed, in_counts, stream); break;
    case InstructionKind::kernel:
    case InstructionKind::squared_norm:
    case InstructionKind::finish_norm:
    case InstructionKind::update: throw Bug(fmt::format("{} is not a communication", instruction().op));
    }
    if (gathered)
        for (const Packing::Blocks& b : gathered->blocks())
            queue.copy_blocks(out + b.tensor, b.tensor_stride, packed + b.packed, b.packed_stride, b.bytes, b.count);
}

void DeviceCommunication::finish() {
    if (!done_) return;
    kernels_->wait(done_);
    done_.reset();
}

} // namespace tutti::runtime

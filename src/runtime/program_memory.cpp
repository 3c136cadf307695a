#include "runtime/program_memory.h"

#include "base/checked.h"

namespace tutti::runtime {

static_assert(2 * sizeof(StepScalars) <= ProgramMemory::scalars_bytes);

ProgramMemory::ProgramMemory(const Program& program, Bytes workspace)
    : program_(&program),
      map_(program, {scalars_bytes}), workspace_{round_up(workspace.count, memory::buffer_alignment)} {}

void ProgramMemory::bind(const offload::ModelData& data, std::byte* scratch) {
    data_ = &data;
    scratch_ = scratch;
}

std::byte* ProgramMemory::address(const Address& address, const Task& task) const {
    if (is_chunk(address.region)) return data_->chunk(address.region, address.chunk) + address.offset;
    if (address.region == Region::offloaded)
        return data_->chunk(address.region, piece_number(*program_, address, task)) + address.offset;
    return scratch_ + map_.offset(address, task);
}

void ProgramMemory::find(std::span<const Argument> arguments, const Task& task,
                         std::span<const std::byte*> places) const {
    for (std::size_t i = 0; i < arguments.size(); ++i) places[i] = address(arguments[i].address, task);
}

void ProgramMemory::find(std::span<const Argument> arguments, const Task& task, std::span<std::byte*> places) const {
    for (std::size_t i = 0; i < arguments.size(); ++i) places[i] = address(arguments[i].address, task);
}

} // namespace tutti::runtime

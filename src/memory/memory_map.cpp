#include "memory/memory_map.h"

#include "base/checked.h"
#include "memory/liveness.h"

namespace tutti::memory {

MemoryMap::MemoryMap(const Program& program, Bytes reserved) : end_(reserved.count) {
    auto take = [&](std::int64_t bytes) {
        const std::int64_t begin = end_;
        end_ += round_up(bytes, buffer_alignment);
        return begin;
    };
    for (std::size_t r = 0; r < region_count; ++r) {
        const auto region = static_cast<Region>(r);
        if (is_chunk(region) || has_slots(region)) continue;
        std::int64_t bytes = program.sizes[r].count;
        if (region == Region::batch) {
            batch_stride_ = round_up(bytes, buffer_alignment);
            bytes = program.micro_batches * batch_stride_;
            batch_bytes_ = {bytes};
        }
        single_[r] = take(bytes);
    }
    for (const LocalStage& stage : program.stages) {
        auto& slots = stages_.emplace_back();
        for (std::size_t r = 0; r < slotted_count; ++r) {
            slots[r].stride = round_up(stage.sizes[r].count, buffer_alignment);
            slots[r].begin = take(stage.slots[r] * slots[r].stride);
        }
    }
}

std::int64_t MemoryMap::offset(const Address& address, const Task& task) const {
    if (has_slots(address.region)) {
        const std::size_t r = slotted(address.region);
        const Slots& slots = stages_[static_cast<std::size_t>(task.local)][r];
        return slots.begin + task.slots[r] * slots.stride + address.offset;
    }
    const std::int64_t copy = address.region == Region::batch ? task.micro_batch * batch_stride_ : 0;
    return single_[static_cast<std::size_t>(address.region)] + copy + address.offset;
}

} // namespace tutti::memory

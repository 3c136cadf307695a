// MemoryMap: the offsets of a program's regions in its memory, without its chunks.
#pragma once

#include "program/program.h"

#include <array>
#include <cstdint>
#include <vector>

namespace tutti::memory {

class MemoryMap {
  public:
    explicit MemoryMap(const Program& program, Bytes reserved = {}); // bytes at the start that are somebody else's

    // Of an address that is not in a chunk, for a task.
    std::int64_t offset(const Address& address, const Task& task) const;
    // Where the micro-batches' tokens begin, and from one to the next.
    std::int64_t batches() const { return single_[static_cast<std::size_t>(Region::batch)]; }
    std::int64_t batch_stride() const { return batch_stride_; }
    Bytes batch_bytes() const { return batch_bytes_; }
    Bytes size() const { return {end_}; }

  private:
    struct Slots {
        std::int64_t begin = 0, stride = 0;
    };
    std::array<std::int64_t, region_count> single_{};      // of regions without slots
    std::vector<std::array<Slots, slotted_count>> stages_; // per stage of the rank
    std::int64_t batch_stride_ = 0, end_ = 0;
    Bytes batch_bytes_;
};

} // namespace tutti::memory
